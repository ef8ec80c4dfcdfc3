//! The kernels at sizes of a few values, which Miri can interpret: it watches every byte, some thousand times slower than the processor
//! (`tests/CHECKED.md`). Values and gradients are checked as everywhere else.

use crate::adam::check_steps;
use crate::attention::layer as attention;
use crate::encoder;
use crate::linear::{check_linear, linear};
use crate::norm::{check_instance_norm, check_layer_norm};
use crate::resample::{check_conv, check_means, check_resize, conv, with_everything};
use crate::spectral::{Conv, GRID, LINE, VOLUME};
use galerkin_kernels::activation::Activation;
use galerkin_kernels::attention::{Attention, Kind, Norm};
use galerkin_kernels::encoder::EncoderLayer;
use galerkin_kernels::spectral::{SpectralConv1d, SpectralConv2d, SpectralConv3d};

/// Three points and four features in two heads, with all that is optional; a single point with none of it. The norm of two features is ±1 whatever they
/// are, and its gradient nothing but cancellation.
#[track_caller]
fn check_encoder(kind: Kind) {
    let least = Attention { batch: 1, d: 2, ..attention(kind, 1, (1, 0, false)) };
    let most = Attention { n: 3, d: 4, heads: 2, coordinates: 1, projection: true, ..least };
    let most = EncoderLayer {
        norm_after: true,
        hidden: 5,
        residual_dropout: 0.2,
        hidden_dropout: 0.2,
        ..encoder::layer(Attention { norm: Norm::Layer, dropout: 0.2, ..most })
    };
    for (layer, weighted) in [(encoder::layer(least), false), (most, true)] {
        encoder::check_parity(&layer, weighted);
        encoder::check_all_gradients(&layer, weighted);
    }
}

#[test]
fn galerkin() {
    check_encoder(Kind::Galerkin);
}

#[test]
fn fourier() {
    check_encoder(Kind::Fourier);
}

#[test]
fn linear_attention() {
    check_encoder(Kind::Linear);
}

#[test]
fn softmax() {
    check_encoder(Kind::Softmax);
}

#[test]
fn linear_layer() {
    check_linear(&linear(1, [1, 0, 1], Activation::None));
    check_linear(&linear(3, [2, 1, 3], Activation::Gelu));
}

#[test]
fn norms() {
    check_layer_norm(3, 5);
    check_instance_norm(2, 3, 2);
}

#[test]
fn spectral_line() {
    Conv::Line(SpectralConv1d { batch: 1, n: 5, inputs: 1, outputs: 2, modes: 3, ..LINE }).check(true);
    Conv::Line(SpectralConv1d { n: 4, inputs: 2, outputs: 1, modes: 2, dropout: 0.2, ..LINE }).check(true);
}

/// The blocks of modes overlap.
#[test]
fn spectral_grid() {
    let grid = SpectralConv2d { batch: 1, n1: 3, n2: 4, inputs: 2, outputs: 1, modes: 2, ..GRID };
    Conv::Grid(grid).check(true);
}

#[test]
fn spectral_volume() {
    let volume = SpectralConv3d { batch: 1, n1: 2, n2: 3, n3: 2, inputs: 1, outputs: 2, modes: 1, ..VOLUME };
    Conv::Volume(volume).check(true);
}

#[test]
fn convolution() {
    check_conv(&conv(1, 1, 1, 1, 1));
    check_conv(&with_everything(conv(2, 2, 3, 1, 2), Activation::Silu));
}

#[test]
fn resize() {
    check_resize([2, 3], [3, 2], 2, Activation::Silu);
    check_resize([1, 2], [2, 1], 1, Activation::None);
}

#[test]
fn local_means() {
    check_means([3, 4], [2, 3], [false, true], 2);
    check_means([1, 2], [2, 1], [true, false], 1);
}

#[test]
fn adam() {
    check_steps(&[1, 0, 5], 0.01, 0.5);
}
