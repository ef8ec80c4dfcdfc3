//! Every kernel against its f64 reference, every backward against central differences of that reference, golden cases, threads.

#[cfg(any())]
mod attention;
#[cfg(any())]
mod encoder;
mod golden;
mod layers;
#[cfg(any())]
mod run;
mod support;
