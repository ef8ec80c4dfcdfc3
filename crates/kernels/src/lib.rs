//! placeholder
pub mod activation;
pub mod attention;
pub mod dims;
pub mod dropout;
pub mod encoder;
pub mod gemm;
pub mod par;
pub mod reference;
pub mod simd;
pub mod spectral;
