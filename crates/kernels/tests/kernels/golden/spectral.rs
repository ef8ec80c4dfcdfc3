//! Spectral convolutions.

use super::{Case, Hyper, Layout, Who, gradients, load, plain, transposed};
use crate::layers::{in_turn, in_turn_mut, widen_all};
use crate::support::widen;
use galerkin_kernels::activation::Activation;
use galerkin_kernels::dropout::Key;
use galerkin_kernels::par;
use galerkin_kernels::reference;
use galerkin_kernels::spectral::{Grads, Parameters, Params, SpectralConv1d, SpectralConv2d};
use std::collections::BTreeMap;

pub fn conv1d(case: &Case) {
    let hyper = hyper(case);
    let [batch, n, inputs] = case.shape("in.x");
    assert_eq!(inputs, hyper.size("in_dim"), "{}: channels of in.x", case.file);
    let conv = SpectralConv1d {
        batch,
        n,
        inputs,
        outputs: hyper.size("out_dim"),
        modes: hyper.size("modes"),
        pointwise: true,
        activation: hyper.activation("activation", Activation::Silu),
        dropout: 0.0,
        key: Key::default(),
    };
    let own: Vec<usize> = (0..conv.weights_len()).collect();
    let mut places = own.clone();
    conv.weights_to_reference(&own, &mut places);
    let layout = layout(vec![("fourier_weight".into(), places)], inputs, conv.outputs);
    let list = load(case, &layout);
    let x = case.values("in.x");

    let wide = widen_all(&list);
    let (y, spectrum) = reference::spectral_conv1d(&conv, &params(&wide), &widen(x));
    case.check_loss(&y);
    case.check_all(Who::Reference, "out.", outputs(y, spectrum));

    let plan = conv.plan();
    let mut run = Run::new(case, &list, conv.saved_len(), conv.workspace_len(par::threads()));
    conv.forward(&plan, &params(&list), x, &mut run.y, &mut run.saved, &mut run.workspace);
    conv.spectrum(&plan, &run.saved, &mut run.spectrum);
    run.workspace.fill(f32::NAN);
    let dy = case.values("in.cotangent");
    let grads = grads(&mut run.grads);
    conv.backward(&plan, &params(&list), x, &run.saved, dy, &mut run.dx, grads, &mut run.workspace);
    run.check(case, &layout);
}

pub fn conv2d(case: &Case) {
    let hyper = hyper(case);
    // (B, n, n, i), or flat (B, n·n, i): the same values.
    let (batch, n, inputs) = match case.tensor("in.x").shape[..] {
        [batch, n1, n2, inputs] if n1 == n2 => (batch, n1, inputs),
        [batch, points, inputs] if points.isqrt().pow(2) == points => (batch, points.isqrt(), inputs),
        ref shape => panic!("{}: in.x has shape {shape:?}", case.file),
    };
    assert_eq!(inputs, hyper.size("in_dim"), "{}: channels of in.x", case.file);
    let conv = SpectralConv2d {
        batch,
        n1: n,
        n2: n,
        inputs,
        outputs: hyper.size("out_dim"),
        modes: hyper.size("modes"),
        pointwise: true,
        activation: hyper.activation("activation", Activation::Silu),
        dropout: 0.0,
        key: Key::default(),
    };
    let own: Vec<usize> = (0..conv.weights_len()).collect();
    let (mut low, mut high) = (vec![0; own.len() / 2], vec![0; own.len() / 2]);
    conv.weights_to_reference(&own, [&mut low, &mut high]);
    let blocks = vec![("fourier_weight.0".into(), low), ("fourier_weight.1".into(), high)];
    let layout = layout(blocks, inputs, conv.outputs);
    let list = load(case, &layout);
    let x = case.values("in.x");

    let wide = widen_all(&list);
    let (y, spectrum) = reference::spectral_conv2d(&conv, &params(&wide), &widen(x));
    case.check_loss(&y);
    case.check_all(Who::Reference, "out.", outputs(y, spectrum));

    let plan = conv.plan();
    let mut run = Run::new(case, &list, conv.saved_len(), conv.workspace_len(par::threads()));
    conv.forward(&plan, &params(&list), x, &mut run.y, &mut run.saved, &mut run.workspace);
    conv.spectrum(&plan, &run.saved, &mut run.spectrum);
    run.workspace.fill(f32::NAN);
    let dy = case.values("in.cotangent");
    let grads = grads(&mut run.grads);
    conv.backward(&plan, &params(&list), x, &run.saved, dy, &mut run.dx, grads, &mut run.workspace);
    run.check(case, &layout);
}

/// The buffers of a run; all start as NaN, so what stays unwritten shows.
struct Run {
    y: Vec<f32>,
    spectrum: Vec<f32>,
    dx: Vec<f32>,
    grads: Vec<Vec<f32>>,
    saved: Vec<f32>,
    workspace: Vec<f32>,
}

impl Run {
    fn new(case: &Case, list: &[Vec<f32>], saved: usize, workspace: usize) -> Self {
        let like = |name: &str| vec![f32::NAN; case.values(name).len()];
        Run {
            y: like("out.y"),
            spectrum: like("out.freq"),
            dx: like("in.x"),
            grads: list.iter().map(|values| vec![f32::NAN; values.len()]).collect(),
            saved: vec![f32::NAN; saved],
            workspace: vec![f32::NAN; workspace],
        }
    }

    fn check(self, case: &Case, layout: &Layout) {
        case.check_all(Who::Kernel, "out.", outputs(self.y, self.spectrum));
        case.check_all(Who::Kernel, "g.", gradients(layout, &self.grads, self.dx));
    }
}

fn hyper(case: &Case) -> Hyper<'_> {
    case.hyper(&["in_dim", "out_dim", "modes", "activation"])
}

/// Spectral weights, W, b.
fn layout(weights: Vec<(String, Vec<usize>)>, inputs: usize, outputs: usize) -> Layout {
    vec![weights, transposed("linear.weight", inputs, outputs), plain("linear.bias", outputs)]
}

fn params<T>(list: &[Vec<T>]) -> Params<'_, T> {
    Parameters::NAMES.map(in_turn(list))
}

fn grads(list: &mut [Vec<f32>]) -> Grads<'_> {
    Parameters::NAMES.map(in_turn_mut(list))
}

fn outputs<T>(y: Vec<T>, spectrum: Vec<T>) -> BTreeMap<String, Vec<T>> {
    BTreeMap::from([("out.y".to_string(), y), ("out.freq".to_string(), spectrum)])
}
