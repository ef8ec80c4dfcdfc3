//! One call that runs a layer's kernels forward and backward.

use crate::layers::{Given, attention_params, encoder_params, in_turn_mut};
use galerkin_kernels::attention::{self, Attention};
use galerkin_kernels::encoder::{self, EncoderLayer};
use galerkin_kernels::par;

/// What a kernel computed. Every buffer it was handed started as NaN, so what it leaves unwritten shows.
pub struct Run {
    pub y: Vec<f32>,
    pub dx: Vec<f32>,
    /// In the order of [`NAMES`].
    pub grads: Vec<Vec<f32>>,
    /// The attention weights.
    pub weights: Vec<f32>,
}

impl Run {
    #[track_caller]
    fn assert_same_bits(self, other: Run) -> Run {
        let bits = |run: &Run| -> Vec<u32> {
            let all = [&run.y, &run.dx, &run.weights].into_iter().chain(&run.grads);
            all.flatten().map(|v| v.to_bits()).collect()
        };
        assert!(bits(&self) == bits(&other), "two runs differ");
        self
    }
}

pub fn unwritten(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

pub fn unwritten_like(list: &[Vec<f32>]) -> Vec<Vec<f32>> {
    list.iter().map(|values| unwritten(values.len())).collect()
}

/// The attention kernel: forward, backward for the cotangent `dy`, and the attention weights. What is kept changes no bit.
pub fn run_attention(layer: &Attention, list: &[Vec<f32>], given: &Given, dy: &[f32]) -> Run {
    let [again, kept] =
        [false, true].map(|keep| attention_once(&Attention { keep, ..*layer }, list, given, dy));
    kept.assert_same_bits(again)
}

fn attention_once(layer: &Attention, list: &[Vec<f32>], given: &Given, dy: &[f32]) -> Run {
    let (params, input) = (attention_params(list), given.input());
    let len = layer.batch * layer.n * layer.d;
    let (mut y, mut dx, mut grads) = (unwritten(len), unwritten(len), unwritten_like(list));
    let mut saved = unwritten(layer.saved_len());
    let mut workspace = unwritten(layer.workspace_len(par::threads()));
    layer.forward(&params, input, &mut y, &mut saved, &mut workspace);
    workspace.fill(f32::NAN);
    layer.backward(&params, input, &saved, dy, &mut dx, attention_grads(&mut grads), &mut workspace);
    let weights = run_attention_weights(layer, list, given);
    Run { y, dx, grads, weights }
}

/// y of the attention kernel.
pub fn forward_attention(layer: &Attention, list: &[Vec<f32>], given: &Given) -> Vec<f32> {
    let mut y = unwritten(layer.batch * layer.n * layer.d);
    let mut saved = unwritten(layer.saved_len());
    let mut workspace = unwritten(layer.workspace_len(par::threads()));
    layer.forward(&attention_params(list), given.input(), &mut y, &mut saved, &mut workspace);
    y
}

/// y of the encoder kernel.
pub fn forward_encoder(layer: &EncoderLayer, list: &[Vec<f32>], given: &Given) -> Vec<f32> {
    let mut y = unwritten(layer.attention.batch * layer.attention.n * layer.attention.d);
    let mut saved = unwritten(layer.saved_len());
    let mut workspace = unwritten(layer.workspace_len(par::threads()));
    layer.forward(&encoder_params(list), given.input(), &mut y, &mut saved, &mut workspace);
    y
}

/// The attention weights (B, H, side, side) alone.
pub fn run_attention_weights(layer: &Attention, list: &[Vec<f32>], given: &Given) -> Vec<f32> {
    let mut weights = unwritten(layer.batch * layer.heads * layer.weights_side() * layer.weights_side());
    layer.weights(&attention_params(list), given.input(), &mut weights);
    weights
}

/// The encoder kernel: forward, and backward for the cotangent `dy`; the weights are those of its attention. What is kept changes no
/// bit.
pub fn run_encoder(layer: &EncoderLayer, list: &[Vec<f32>], given: &Given, dy: &[f32]) -> Run {
    let [again, kept] = [false, true].map(|keep| {
        let attention = Attention { keep, ..layer.attention };
        encoder_once(&EncoderLayer { attention, ..*layer }, list, given, dy)
    });
    kept.assert_same_bits(again)
}

fn encoder_once(layer: &EncoderLayer, list: &[Vec<f32>], given: &Given, dy: &[f32]) -> Run {
    let (params, input) = (encoder_params(list), given.input());
    let len = layer.attention.batch * layer.attention.n * layer.attention.d;
    let (mut y, mut dx, mut grads) = (unwritten(len), unwritten(len), unwritten_like(list));
    let mut saved = unwritten(layer.saved_len());
    let mut workspace = unwritten(layer.workspace_len(par::threads()));
    layer.forward(&params, input, &mut y, &mut saved, &mut workspace);
    workspace.fill(f32::NAN);
    layer.backward(&params, input, &saved, dy, &mut dx, encoder_grads(&mut grads), &mut workspace);
    let weights = run_attention_weights(&layer.attention, &list[..attention::Parameters::COUNT], given);
    Run { y, dx, grads, weights }
}

pub fn attention_grads(list: &mut [Vec<f32>]) -> attention::Grads<'_> {
    attention::Parameters::NAMES.map(in_turn_mut(list))
}

pub fn encoder_grads(list: &mut [Vec<f32>]) -> encoder::Grads<'_> {
    encoder::Parameters::NAMES.map(in_turn_mut(list))
}
