//! Attention and encoder layers whose parameters are a list, so that tests can walk, perturb and compare them one by one.

use crate::support::{check_gradient, check_pairs, values, widen};
use galerkin_kernels::attention::{self, Attention, Input};
use galerkin_kernels::encoder::{self, EncoderLayer};
use galerkin_kernels::reference;

/// The names of the parameters, in the order of the lists: those of attention, then those of the encoder layer around it.
pub const NAMES: encoder::Parameters<&str> = encoder::Parameters::NAMES;

/// The lengths of the parameters of attention.
pub fn attention_lens(layer: &Attention) -> Vec<usize> {
    layer.lengths().into_array().to_vec()
}

/// The lengths of the parameters of an encoder layer.
pub fn encoder_lens(layer: &EncoderLayer) -> Vec<usize> {
    layer.lengths().into_array().to_vec()
}

/// Parameters of these lengths, none at a special value: γ around 1, the others around 0 and small enough that the layers
/// of a test neither blow up nor saturate.
pub fn parameters(lens: &[usize], d: usize) -> Vec<Vec<f32>> {
    let names = NAMES.into_array();
    let draw = |(slot, &len): (usize, &usize)| {
        let gamma = names[slot].starts_with("gamma");
        let scale = if names[slot].starts_with("w_") { 1.5 / (d as f32).sqrt() } else { 0.5 };
        let shift = if gamma { 1.0 } else { 0.0 };
        values(100 + slot as u32, len).into_iter().map(|v| shift + scale * v).collect()
    };
    lens.iter().enumerate().map(draw).collect()
}

pub fn attention_params<T>(list: &[Vec<T>]) -> attention::Params<'_, T> {
    attention::Parameters::NAMES.map(in_turn(list))
}

pub fn encoder_params<T>(list: &[Vec<T>]) -> encoder::Params<'_, T> {
    encoder::Parameters::NAMES.map(in_turn(list))
}

/// The slices of a list, one for every name it is asked for.
pub fn in_turn<'a, T>(list: &'a [Vec<T>]) -> impl FnMut(&'static str) -> &'a [T] {
    let mut list = list.iter();
    move |name| list.next().unwrap_or_else(|| panic!("the list ends before {name}")).as_slice()
}

/// The same for gradients.
pub fn in_turn_mut<'a>(list: &'a mut [Vec<f32>]) -> impl FnMut(&'static str) -> &'a mut [f32] {
    let mut list = list.iter_mut();
    move |name| list.next().unwrap_or_else(|| panic!("the list ends before {name}")).as_mut_slice()
}

/// What a layer looks at, owned.
#[derive(Clone)]
pub struct Given<T = f32> {
    pub x: Vec<T>,
    pub coordinates: Vec<T>,
    pub weights: Option<Vec<T>>,
}

impl<T> Given<T> {
    pub fn input(&self) -> Input<'_, T> {
        Input { x: &self.x, coordinates: &self.coordinates, weights: self.weights.as_deref() }
    }
}

impl Given {
    /// Random x and coordinates, and on demand positive quadrature weights that sum to about one.
    pub fn new(layer: &Attention, weighted: bool) -> Self {
        let points = layer.batch * layer.n;
        let weigh = |v: f32| (1.0 + 0.8 * v) / layer.n as f32;
        Given {
            x: values(1, points * layer.d),
            coordinates: values(2, points * layer.coordinates).into_iter().map(|v| 0.5 + 0.5 * v).collect(),
            weights: weighted.then(|| values(3, points).into_iter().map(weigh).collect()),
        }
    }

    pub fn widen(&self) -> Given<f64> {
        Given {
            x: widen(&self.x),
            coordinates: widen(&self.coordinates),
            weights: self.weights.as_deref().map(widen),
        }
    }
}

/// A list of parameters in f64.
pub fn widen_all(list: &[Vec<f32>]) -> Vec<Vec<f64>> {
    list.iter().map(|values| widen(values)).collect()
}

/// y of the attention kernel's reference.
pub fn reference_attention(layer: &Attention, list: &[Vec<f64>], given: &Given<f64>) -> Vec<f64> {
    reference::attention(layer, &attention_params(list), given.input()).y
}

/// y of the encoder kernel's reference.
pub fn reference_encoder(layer: &EncoderLayer, list: &[Vec<f64>], given: &Given<f64>) -> Vec<f64> {
    reference::encoder_layer(layer, &encoder_params(list), given.input())
}

/// Checks the gradient of x and of every parameter against central differences of `y`, a reference as a function of the
/// parameters and the input, under the loss Σ dy·y.
#[track_caller]
pub fn check_gradients(
    what: &str,
    (list, grads): (&[Vec<f32>], &[Vec<f32>]),
    (given, dx): (&Given, &[f32]),
    dy: &[f32],
    y: impl Fn(&[Vec<f64>], &Given<f64>) -> Vec<f64>,
    roundings: f64,
) {
    let (at, given) = (widen_all(list), given.widen());
    let loss = |y: Vec<f64>| y.iter().zip(dy).map(|(y, dy)| y * *dy as f64).sum::<f64>();
    let of_x = |x: &[f64]| loss(y(&at, &Given { x: x.to_vec(), ..given.clone() }));
    check_gradient(&format!("{what}: x"), dx, &given.x, of_x, roundings);
    check_pairs(
        what,
        &NAMES.into_array()[..list.len()],
        (list, grads),
        |list| loss(y(list, &given)),
        roundings,
    );
}

/// The same for large layers, where a reference run is dear: of every parameter and of x only the derivative along one
/// random direction v. The roundings of the entries of the gradient add up like a random walk, to √entries of them.
#[track_caller]
pub fn check_directions(
    what: &str,
    (list, grads): (&[Vec<f32>], &[Vec<f32>]),
    (given, dx): (&Given, &[f32]),
    dy: &[f32],
    y: impl Fn(&[Vec<f64>], &Given<f64>) -> Vec<f64>,
    roundings: f64,
) {
    const STEP: f64 = 1e-5;
    let (at, given) = (widen_all(list), given.widen());
    let loss = |y: Vec<f64>| y.iter().zip(dy).map(|(y, dy)| y * *dy as f64).sum::<f64>();
    let check = |name: &str, gradient: &[f32], scale: f64, f: &dyn Fn(f64, &[f64]) -> f64| {
        let v = widen(&values(7, gradient.len()));
        let want = (f(STEP, &v) - f(-STEP, &v)) / (2.0 * STEP);
        let found: f64 = gradient.iter().zip(&v).map(|(g, v)| *g as f64 * v).sum();
        let allowed = roundings * f32::EPSILON as f64 * scale * (gradient.len() as f64).sqrt();
        let error = (found - want).abs();
        assert!(
            error <= allowed,
            "{what}: {name}: found {found}, expected {want}; off by {error:.2e}, allowed {allowed:.2e}"
        );
    };
    let largest = |gradient: &[f32]| gradient.iter().fold(0.0f64, |m, g| m.max(g.abs() as f64));
    let moved = |from: &[f64], step: f64, v: &[f64]| from.iter().zip(v).map(|(x, v)| x + step * v).collect();
    check("x", dx, largest(dx), &|step, v| {
        loss(y(&at, &Given { x: moved(&given.x, step, v), ..given.clone() }))
    });
    let names = NAMES.into_array();
    for slot in (0..list.len()).filter(|slot| !list[*slot].is_empty()) {
        // As above, a bias is measured against its weight.
        let scale = largest(&grads[slot]).max(largest(&grads[slot & !1]));
        check(names[slot], &grads[slot], scale, &|step, v| {
            let mut list = at.clone();
            list[slot] = moved(&at[slot], step, v);
            loss(y(&list, &given))
        });
    }
}

/// Runs `f`, which has to panic, and returns the message.
#[track_caller]
pub fn panic_message(what: &str, f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let payload = std::panic::catch_unwind(f).expect_err(&format!("{what}: did not panic"));
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => payload.downcast_ref::<&str>().unwrap_or(&"").to_string(),
    }
}

/// Asserts that a panic's message names every size as `name = size`.
#[track_caller]
pub fn assert_names_sizes(what: &str, message: &str, sizes: &[usize]) {
    for size in sizes {
        assert!(message.contains(&format!("= {size}")), "{what}: {size} is missing in {message:?}");
    }
}
