//! placeholder
pub mod activation;
pub mod adam;
pub mod attention;
pub mod conv3x3;
pub mod dims;
pub mod dropout;
pub mod encoder;
pub mod gemm;
pub mod par;
pub mod reference;
pub mod resize;
pub mod simd;
