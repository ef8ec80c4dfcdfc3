//! Down- and upscalers: graphs of 3 × 3 convolutions, activations and resizes.
//!
//! The library has these parts; how they are put together is written here a second time, as a list of steps that the
//! reference runs forward, and the kernels forward and backward.

use super::{Case, Hyper, Layout, Who, gradients, load, plain, transposed};
use crate::layers::widen_all;
use crate::support::widen;
use galerkin_kernels::activation::Activation;
use galerkin_kernels::conv3x3::{Conv3x3, Grads, Params};
use galerkin_kernels::par;
use galerkin_kernels::reference;
use galerkin_kernels::resize::Resize;
use std::collections::BTreeMap;

pub fn down(case: &Case) {
    let hyper = case.hyper(&["in_dim", "out_dim", "interp_size", "activation_type", "downsample_mode"]);
    if hyper.text("downsample_mode") != "interp" {
        hyper.unknown("downsample_mode");
    }
    check(case, &hyper, Axes::ChannelsLast, |graph, x| encoder(graph, x, "downsample.", &hyper));
}

pub fn up(case: &Case) {
    let hyper = case.hyper(&["in_dim", "out_dim", "interp_size", "activation_type", "upsample_mode"]);
    if hyper.text("upsample_mode") != "interp" {
        hyper.unknown("upsample_mode");
    }
    check(case, &hyper, Axes::ChannelsLast, |graph, x| upsample(graph, x, "upsample.", &hyper));
}

pub fn interp_encoder(case: &Case) {
    let hyper = case.hyper(&["in_dim", "out_dim", "interp_size", "activation_type", "residual"]);
    check(case, &hyper, Axes::ChannelsFirst, |graph, x| encoder(graph, x, "", &hyper));
}

pub fn interp_upsample(case: &Case) {
    let hyper =
        case.hyper(&["in_dim", "out_dim", "interp_size", "activation_type", "conv_block", "residual"]);
    check(case, &hyper, Axes::ChannelsFirst, |graph, x| upsample(graph, x, "", &hyper));
}

/// The table of sizes between a fine grid n_f and a coarse grid n_c.
pub fn sizes(case: &Case) {
    let rows = case.json["rows"].as_array().unwrap_or_else(|| panic!("{}: no rows", case.file));
    for row in rows {
        let size =
            |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{}: {key} in {row}", case.file)) as usize;
        let pair = |key: &str| {
            let at =
                |i: usize| row[key][i].as_u64().unwrap_or_else(|| panic!("{}: {key} in {row}", case.file));
            [at(0) as usize, at(1) as usize]
        };
        let (n_f, n_c) = (size("n_f"), size("n_c"));
        let ScalerSizes { factor, middle } = scaler_sizes(n_f, n_c);
        let want = row["down_factor"].as_f64().unwrap();
        assert!((factor - want).abs() < 1e-12, "{}: factor {factor}, golden {want}", case.file);
        assert_eq!(pair("up_sizes"), [middle, n_f], "{}: up, {n_f} and {n_c}", case.file);
        assert_eq!(pair("down_sizes"), [middle, n_c], "{}: down, {n_f} and {n_c}", case.file);
        let first = scaled(n_f, factor);
        let by_factor = [first, scaled(first, factor)];
        assert_eq!(pair("down_sizes_with_factor"), by_factor, "{}: down by factor", case.file);
        assert_eq!(row["factor_reaches_n_c"], by_factor[1] == n_c, "{}: {n_f} to {n_c}", case.file);
        let known = [
            "n_f",
            "n_c",
            "down_factor",
            "up_sizes",
            "down_sizes",
            "down_sizes_with_factor",
            "factor_reaches_n_c",
        ];
        for key in row.as_object().unwrap().keys() {
            assert!(known.contains(&key.as_str()), "{}: unknown column {key}", case.file);
        }
    }
}

struct ScalerSizes {
    /// Each of the two steps of the downscaler by factor.
    factor: f64,
    /// The size between the two steps of the upscaler, and of the downscaler by sizes.
    middle: usize,
}

/// The rule of the PyTorch code. About √(n_c/n_f), on a lattice of 0.005, moved up when its fourth decimal is small; the last
/// digit is that of the shortest decimal notation (of 0.71 it is 1).
fn scaler_sizes(n_f: usize, n_c: usize) -> ScalerSizes {
    let rounded = |value: f64, digits: usize| format!("{value:.digits$}").parse::<f64>().unwrap();
    let ratio = rounded((n_c as f64 / n_f as f64).sqrt(), 4);
    let last_digit = ratio.to_string().chars().last().and_then(|c| c.to_digit(10)).unwrap();
    let mut lifted = rounded(ratio, 3);
    if last_digit < 5 {
        lifted += 0.005;
    }
    let factor = (lifted / 0.005 + 0.5).floor() * 0.005;
    ScalerSizes { factor, middle: (n_f as f64 * factor).round_ties_even() as usize - 1 }
}

fn scaled(size: usize, factor: f64) -> usize {
    (size as f64 * factor).floor() as usize
}

/// conv0, resize and act, then three convolutions in a row whose outputs are put side by side, resize and act.
fn encoder(graph: &mut Graph, x: Node, prefix: &str, hyper: &Hyper) -> Node {
    let (out, residual) = (hyper.size("out_dim"), hyper.flag("residual", false));
    let activation = hyper.activation("activation_type", Activation::Silu);
    let name = |conv: usize| format!("{prefix}conv{conv}");
    let third = out / 3;

    let x = graph.block(x, &name(0), out, residual, activation);
    let x = graph.resize(x, size_after(hyper, 0, x.n), activation);
    let x1 = graph.block(x, &name(1), third, residual, activation);
    let x2 = graph.block(x1, &name(2), third, residual, activation);
    let x3 = graph.block(x2, &name(3), out - 2 * third, residual, activation);
    let mut y = graph.beside(&[x1, x2, x3]);
    if residual {
        y = graph.add(y, x);
    }
    graph.resize(y, size_after(hyper, 1, y.n), activation)
}

/// Resize, convolution, act twice (once inside the block, once after it), resize.
fn upsample(graph: &mut Graph, x: Node, prefix: &str, hyper: &Hyper) -> Node {
    let activation = hyper.activation("activation_type", Activation::Silu);
    let mut y = graph.resize(x, size_after(hyper, 0, x.n), Activation::None);
    if hyper.flag("conv_block", true) {
        let residual = hyper.flag("residual", false);
        y = graph.block(y, &format!("{prefix}conv.0"), hyper.size("out_dim"), residual, activation);
        y = graph.activate(y, activation);
    }
    graph.resize(y, size_after(hyper, 1, y.n), Activation::None)
}

/// The size after resize number `which` of images of n × n pixels: a factor or a pair of sizes.
fn size_after(hyper: &Hyper, which: usize, n: usize) -> usize {
    let entry = &hyper.need("interp_size")[which];
    if let Some(factor) = entry.as_f64() {
        return scaled(n, factor);
    }
    match (entry[0].as_u64(), entry[1].as_u64()) {
        (Some(m1), Some(m2)) if m1 == m2 => m1 as usize,
        _ => hyper.unknown("interp_size"),
    }
}

/// A value of the graph: images of n × n pixels, channels last.
#[derive(Clone, Copy)]
struct Node {
    value: usize,
    n: usize,
    channels: usize,
}

/// Value 0 is the input; step k makes value k + 1. Parameters are places in the list of the layout.
struct Graph {
    batch: usize,
    steps: Vec<Step>,
    layout: Layout,
}

enum Step {
    Convolve {
        x: usize,
        w: usize,
        conv: Conv3x3,
    },
    Resize {
        x: usize,
        n: usize,
        m: usize,
        channels: usize,
        activation: Activation,
    },
    Linear {
        x: usize,
        w: usize,
        b: usize,
        rows: usize,
        inputs: usize,
        outputs: usize,
    },
    Activate {
        x: usize,
        activation: Activation,
    },
    Add {
        x: [usize; 2],
    },
    /// Values and their channels.
    Beside {
        x: Vec<(usize, usize)>,
    },
}

impl Graph {
    fn push(&mut self, step: Step, n: usize, channels: usize) -> Node {
        self.steps.push(step);
        Node { value: self.steps.len(), n, channels }
    }

    fn parameter(&mut self, parts: Vec<(String, Vec<usize>)>) -> usize {
        self.layout.push(parts);
        self.layout.len() - 1
    }

    /// act(conv(x)), or act(conv(x) + shortcut(x)) where the shortcut is x itself or, between different channels, linear.
    fn block(&mut self, x: Node, name: &str, outputs: usize, residual: bool, activation: Activation) -> Node {
        let (n, inputs) = (x.n, x.channels);
        // Golden (out, in, 3, 3), ours (3, 3, in, out).
        let place = |at: usize| (at % 9 * inputs + at / 9 % inputs) * outputs + at / 9 / inputs;
        let places = (0..9 * inputs * outputs).map(place).collect();
        let w = self.parameter(vec![(format!("{name}.conv.0.weight"), places)]);
        let conv = Conv3x3 {
            batch: self.batch,
            n1: n,
            n2: n,
            inputs,
            outputs,
            bias: false,
            dropout: None,
            activation: if residual { Activation::None } else { activation },
            keep: false,
        };
        let z = self.push(Step::Convolve { x: x.value, w, conv }, n, outputs);
        if !residual {
            return z;
        }
        let shortcut = if inputs == outputs {
            x
        } else {
            let w = self.parameter(transposed(format!("{name}.res.shortcut.weight"), inputs, outputs));
            let b = self.parameter(plain(format!("{name}.res.shortcut.bias"), outputs));
            let rows = self.batch * n * n;
            self.push(Step::Linear { x: x.value, w, b, rows, inputs, outputs }, n, outputs)
        };
        let sum = self.add(z, shortcut);
        self.activate(sum, activation)
    }

    fn resize(&mut self, x: Node, m: usize, activation: Activation) -> Node {
        let channels = x.channels;
        self.push(Step::Resize { x: x.value, n: x.n, m, channels, activation }, m, channels)
    }

    fn activate(&mut self, x: Node, activation: Activation) -> Node {
        self.push(Step::Activate { x: x.value, activation }, x.n, x.channels)
    }

    fn add(&mut self, a: Node, b: Node) -> Node {
        self.push(Step::Add { x: [a.value, b.value] }, a.n, a.channels)
    }

    fn beside(&mut self, nodes: &[Node]) -> Node {
        let x: Vec<_> = nodes.iter().map(|node| (node.value, node.channels)).collect();
        let channels = x.iter().map(|(_, channels)| channels).sum();
        self.push(Step::Beside { x }, nodes[0].n, channels)
    }

    /// The last value, by the f64 reference.
    fn run_reference(&self, list: &[Vec<f64>], x: Vec<f64>) -> Vec<f64> {
        let mut values = vec![x];
        for step in &self.steps {
            let value = match step {
                Step::Convolve { x, w, conv } => {
                    reference::conv3x3(conv, &values[*x], Params { w: &list[*w], b: &[] })
                }
                Step::Resize { x, n, m, channels, activation } => {
                    reference::resize(self.batch, [*n; 2], [*m; 2], *channels, *activation, &values[*x])
                }
                Step::Linear { x, w, b, rows, inputs, outputs } => {
                    let (w, b) = (&list[*w], &list[*b]);
                    reference::linear(&values[*x], w, b, *rows, *inputs, *outputs, Activation::None)
                }
                Step::Activate { x, activation } => {
                    values[*x].iter().map(|z| reference::activate(*activation, *z)).collect()
                }
                Step::Add { x: [a, b] } => values[*a].iter().zip(&values[*b]).map(|(a, b)| a + b).collect(),
                Step::Beside { x } => beside(x, &values),
            };
            values.push(value);
        }
        values.pop().unwrap()
    }

    /// All values, by the kernels.
    fn forward(&self, list: &[Vec<f32>], x: Vec<f32>) -> Vec<Vec<f32>> {
        let mut values = vec![x];
        for step in &self.steps {
            let value = match step {
                Step::Convolve { x, w, conv } => {
                    let mut y = unwritten(conv.y_len());
                    let params = Params { w: &list[*w], b: &[] };
                    let mut workspace = unwritten(conv.forward_workspace_len(par::threads()));
                    conv.forward(&values[*x], params, &mut y, &mut [], &mut workspace);
                    y
                }
                Step::Resize { x, n, m, channels, activation } => {
                    let resize = Resize::new([*n; 2], [*m; 2], *channels, *activation);
                    let mut y = unwritten(resize.y_len(self.batch));
                    let mut workspace = unwritten(resize.forward_workspace_len(par::threads()));
                    resize.forward(self.batch, &values[*x], &mut y, &mut workspace);
                    y
                }
                // No network of ours has this shortcut; its few products are done here.
                Step::Linear { x, w, b, rows, inputs, outputs } => {
                    let (x, w, b) = (widen(&values[*x]), widen(&list[*w]), widen(&list[*b]));
                    let y = reference::linear(&x, &w, &b, *rows, *inputs, *outputs, Activation::None);
                    y.into_iter().map(|y| y as f32).collect()
                }
                Step::Activate { x, activation } => {
                    let mut y = unwritten(values[*x].len());
                    activation.forward(&values[*x], &mut y);
                    y
                }
                Step::Add { x: [a, b] } => values[*a].iter().zip(&values[*b]).map(|(a, b)| a + b).collect(),
                Step::Beside { x } => beside(x, &values),
            };
            values.push(value);
        }
        values
    }

    /// The gradients of the parameters and of the input, from all values and the gradient of the last.
    fn backward(&self, list: &[Vec<f32>], values: &[Vec<f32>], dy: Vec<f32>) -> (Vec<Vec<f32>>, Vec<f32>) {
        let mut grads: Vec<Vec<f32>> = list.iter().map(|values| unwritten(values.len())).collect();
        let mut flows: Vec<Vec<f32>> = values.iter().map(|values| vec![0.0; values.len()]).collect();
        *flows.last_mut().unwrap() = dy;
        for (k, step) in self.steps.iter().enumerate().rev() {
            let dy = std::mem::take(&mut flows[k + 1]);
            match step {
                Step::Convolve { x, w, conv } => {
                    let (mut dx, params) = (unwritten(conv.x_len()), Params { w: &list[*w], b: &[] });
                    let grads = Grads { w: &mut grads[*w], b: &mut [] };
                    let mut workspace = unwritten(conv.workspace_len(par::threads()));
                    conv.backward(&values[*x], params, &[], &dy, Some(&mut dx), grads, &mut workspace);
                    accumulate(&mut flows[*x], dx);
                }
                Step::Resize { x, n, m, channels, activation } => {
                    let resize = Resize::new([*n; 2], [*m; 2], *channels, *activation);
                    let mut dx = unwritten(resize.x_len(self.batch));
                    let mut workspace = unwritten(resize.workspace_len(self.batch, par::threads()));
                    resize.backward(self.batch, &values[*x], &dy, &mut dx, &mut workspace);
                    accumulate(&mut flows[*x], dx);
                }
                Step::Linear { x, w, b, rows, inputs, outputs } => {
                    let entry = |i: usize, o: usize| {
                        let products = (0..*rows)
                            .map(|row| values[*x][row * inputs + i] as f64 * dy[row * outputs + o] as f64);
                        products.sum::<f64>() as f32
                    };
                    grads[*w] = (0..inputs * outputs).map(|at| entry(at / outputs, at % outputs)).collect();
                    let column = |o| (0..*rows).map(|row| dy[row * outputs + o] as f64).sum::<f64>() as f32;
                    grads[*b] = (0..*outputs).map(column).collect();
                    let dx = |at: usize| {
                        let (row, i) = (at / inputs, at % inputs);
                        let terms = (0..*outputs).map(|o| dy[row * outputs + o] * list[*w][i * outputs + o]);
                        terms.sum::<f32>()
                    };
                    accumulate(&mut flows[*x], (0..rows * inputs).map(dx).collect());
                }
                Step::Activate { x, activation } => {
                    let mut dz = dy;
                    activation.backward(&values[*x], &mut dz);
                    accumulate(&mut flows[*x], dz);
                }
                Step::Add { x: [a, b] } => {
                    accumulate(&mut flows[*a], dy.clone());
                    accumulate(&mut flows[*b], dy);
                }
                Step::Beside { x } => {
                    let total: usize = x.iter().map(|(_, channels)| channels).sum();
                    let mut first = 0;
                    for (value, channels) in x {
                        let own = dy.chunks(total).flat_map(|pixel| pixel[first..first + channels].to_vec());
                        accumulate(&mut flows[*value], own.collect());
                        first += channels;
                    }
                }
            }
        }
        (grads, flows.swap_remove(0))
    }
}

/// Builds the graph of a case, runs it both ways and compares.
fn check(case: &Case, hyper: &Hyper, axes: Axes, build: impl Fn(&mut Graph, Node) -> Node) {
    let [batch, n, channels] = match (axes, case.shape("in.x")) {
        (Axes::ChannelsLast, [batch, n1, n2, c]) if n1 == n2 => [batch, n1, c],
        (Axes::ChannelsFirst, [batch, c, n1, n2]) if n1 == n2 => [batch, n1, c],
        (_, shape) => panic!("{}: in.x has shape {shape:?}", case.file),
    };
    assert_eq!(channels, hyper.size("in_dim"), "{}: channels of in.x", case.file);
    let mut graph = Graph { batch, steps: Vec::new(), layout: Layout::new() };
    let y = build(&mut graph, Node { value: 0, n, channels });
    assert_eq!(y.channels, hyper.size("out_dim"), "{}: channels of y", case.file);
    let list = load(case, &graph.layout);
    let x = axes.to_last(case.values("in.x"), channels, n);
    let dy = axes.to_last(case.values("in.cotangent"), y.channels, y.n);

    let exact = graph.run_reference(&widen_all(&list), widen(&x));
    let exact = axes.restore(&exact, y.channels, y.n);
    case.check_loss(&exact);
    case.check_all(Who::Reference, "out.", BTreeMap::from([("out.y".to_string(), exact)]));

    let values = graph.forward(&list, x);
    let ours = axes.restore(values.last().unwrap(), y.channels, y.n);
    case.check_all(Who::Kernel, "out.", BTreeMap::from([("out.y".to_string(), ours)]));
    let (grads, dx) = graph.backward(&list, &values, dy);
    let dx = axes.restore(&dx, channels, n);
    case.check_all(Who::Kernel, "g.", gradients(&graph.layout, &grads, dx));
}

/// Where the stored images have their channels; ours have them last.
#[derive(Clone, Copy)]
enum Axes {
    ChannelsLast,
    ChannelsFirst,
}

impl Axes {
    fn to_last<T: Copy>(self, values: &[T], channels: usize, n: usize) -> Vec<T> {
        match self {
            Axes::ChannelsLast => values.to_vec(),
            Axes::ChannelsFirst => swapped(values, channels, n * n),
        }
    }

    fn restore<T: Copy>(self, values: &[T], channels: usize, n: usize) -> Vec<T> {
        match self {
            Axes::ChannelsLast => values.to_vec(),
            Axes::ChannelsFirst => swapped(values, n * n, channels),
        }
    }
}

/// (…, rows, cols) to (…, cols, rows).
fn swapped<T: Copy>(values: &[T], rows: usize, cols: usize) -> Vec<T> {
    let matrix = |m: &[T]| -> Vec<T> { (0..rows * cols).map(|at| m[at % rows * cols + at / rows]).collect() };
    values.chunks(rows * cols).flat_map(matrix).collect()
}

/// Channels of several values side by side.
fn beside<T: Copy>(parts: &[(usize, usize)], values: &[Vec<T>]) -> Vec<T> {
    let pixels = values[parts[0].0].len() / parts[0].1;
    let of_pixel = |pixel: usize| {
        parts
            .iter()
            .flat_map(move |(value, channels)| &values[*value][pixel * channels..(pixel + 1) * channels])
    };
    (0..pixels).flat_map(of_pixel).copied().collect()
}

fn accumulate(into: &mut [f32], values: Vec<f32>) {
    for (into, value) in into.iter_mut().zip(values) {
        *into += value;
    }
}

fn unwritten(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}
