//! placeholder
pub mod activation;
pub mod attention;
mod dims;
pub mod dropout;
pub mod encoder;
pub mod feed_forward;
pub mod gemm;
pub mod linear;
pub mod norm;
pub mod par;
pub mod reference;
pub mod simd;
mod tile;
