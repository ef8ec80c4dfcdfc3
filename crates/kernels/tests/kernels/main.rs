//! Every kernel against its f64 reference, every backward against central differences of that reference, golden cases, threads.

mod spectral;
mod support;
