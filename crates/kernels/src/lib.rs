//! placeholder
pub mod activation;
pub mod adam;
pub mod attention;
pub mod conv3x3;
mod dims;
pub mod dropout;
pub mod encoder;
pub mod feed_forward;
pub mod gemm;
pub mod linear;
pub mod norm;
pub mod par;
pub mod reference;
pub mod resize;
pub mod simd;
pub mod spectral;
mod tile;
