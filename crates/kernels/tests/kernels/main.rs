//! Every kernel against its f64 reference, every backward against central differences of that reference, golden cases, threads.

mod adam;
mod attention;
mod encoder;
mod golden;
mod layers;
mod linear;
mod matrix;
mod norm;
mod resample;
mod run;
mod small;
mod spectral;
mod support;
