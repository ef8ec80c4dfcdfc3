//! The operations models are made of: functions on tensors that check shapes and choose who computes.
//!
//! On the CPU backend (Flex), plain or with autodiff, f32 tensors go to the fused kernels of `galerkin_kernels`, forward
//! and backward. Everywhere else, and inside [`composed_only`], the same operation is composed of tensor operations and
//! Burn differentiates it. Both draw the same dropout masks.
//!
//! | file | what |
//! | --- | --- |
//! | `extension.rs` | an operation as a value, and the trait of a backend that has kernels for it |
//! | `flex.rs` | that trait for Flex: tensors as slices |
//! | `spare.rs` | memory of tensors no longer held, for the next of their length |
//! | `autodiff.rs` | the backward rule |
//! | `composed.rs` | the operations from plain tensor operations |

mod autodiff;
mod composed;
mod extension;
mod flex;
mod spare;

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use burn::backend::autodiff::checkpoint::strategy::{BalancedCheckpointing, NoCheckpointing};
use burn::backend::flex::FlexTensor;
use burn::backend::{Autodiff, DispatchDevice, Flex, GradientCheckpointingStrategy};
use burn::tensor::{DType, Device, Shape, Tensor};
use galerkin_kernels::activation::Activation;
use galerkin_kernels::attention::{self, Attention};
use galerkin_kernels::conv3x3::{self, Conv3x3};
use galerkin_kernels::dropout::{Dropout, Key};
use galerkin_kernels::encoder::{self, EncoderLayer};
use galerkin_kernels::feed_forward::{self, FeedForward};
use galerkin_kernels::linear::{self, Linear};
use galerkin_kernels::local_means::LocalMeans;
use galerkin_kernels::pointwise::Pointwise;
use galerkin_kernels::resize::Resize;
use galerkin_kernels::spectral::{
    self, Plan, Plan2d, Plan3d, SpectralConv1d, SpectralConv2d, SpectralConv3d,
};

use crate::error::{Error, Result};
use autodiff::Tracked;
pub(crate) use extension::keeping;
use extension::{Call, FusedOps, Op, Operands};

/// What attention looks at, besides its parameters.
#[derive(Clone, Debug)]
pub struct AttentionInput {
    /// (B, n, d)
    pub x: Tensor<3>,
    /// (B, n, p); `None` without coordinates. They get no gradient.
    pub coordinates: Option<Tensor<3>>,
    /// (B, n) quadrature weights in place of 1/n. They get no gradient.
    pub weights: Option<Tensor<2>>,
}

/// Parameters of attention: `y = x W + b` with W stored (in, out).
#[derive(Clone, Debug)]
pub struct AttentionParams {
    /// (d, d)
    pub w_q: Tensor<2>,
    /// (d)
    pub b_q: Tensor<1>,
    /// (d, d)
    pub w_k: Tensor<2>,
    /// (d)
    pub b_k: Tensor<1>,
    /// (d, d)
    pub w_v: Tensor<2>,
    /// (d)
    pub b_v: Tensor<1>,
    /// γ and β of K, then those of V (galerkin, linear) or Q (fourier, softmax), (d) each, heads side by side.
    pub norm: Option<[Tensor<1>; 4]>,
    /// (H·D, d) and (d).
    pub projection: Option<(Tensor<2>, Tensor<1>)>,
}

/// Parameters of y = act(x W₁ + b₁) W₂ + b₂.
#[derive(Clone, Debug)]
pub struct FeedForwardParams {
    /// (inputs, hidden)
    pub w_1: Tensor<2>,
    /// (hidden)
    pub b_1: Tensor<1>,
    /// (hidden, outputs)
    pub w_2: Tensor<2>,
    /// (outputs)
    pub b_2: Tensor<1>,
}

/// Parameters of an encoder layer.
#[derive(Clone, Debug)]
pub struct EncoderParams {
    /// The attention's own.
    pub attention: AttentionParams,
    /// Those of the feed-forward network.
    pub feed_forward: FeedForwardParams,
    /// γ and β of the norm after the first residual and of that after the second, (d) each.
    pub norm: Option<[Tensor<1>; 4]>,
}

/// Parameters of a spectral convolution on a grid of one, two or three axes.
#[derive(Clone, Debug)]
pub struct SpectralParams {
    /// (modes, 2, i, o): a complex matrix for each of the m kept modes in 1D, 2m² in 2D, 4m³ in 3D, in the kernels' order.
    pub weights: Tensor<4>,
    /// (i, o) and (o).
    pub pointwise: Option<(Tensor<2>, Tensor<1>)>,
}

/// Runs `f` with every operation composed, on any backend: for tests and for measuring what the kernels gain.
pub fn composed_only<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            COMPOSED_ONLY.set(self.0);
        }
    }
    let _restore = Restore(COMPOSED_ONLY.replace(true));
    f()
}

thread_local! {
    static COMPOSED_ONLY: Cell<bool> = const { Cell::new(false) };
}

/// Attention without residual: (B, n, d) to (B, n, d). Batch and points are read off x, whatever `op` says.
pub fn attention(mut op: Attention, input: AttentionInput, params: AttentionParams) -> Result<Tensor<3>> {
    check_attention(&mut op, &input, &params)?;
    if !has_kernels(&input.x) {
        return Ok(composed::attention(&op, input, params).0);
    }
    let call = Call { op: Op::Attention(op), output: input.x.shape(), weighted: input.weights.is_some() };
    Ok(OperandTensors::attention(input).with(params.by_name().into_array()).run(call))
}

/// The attention weights after dropout: (B, H, D, D) for galerkin and linear, (B, H, n, n) for fourier and softmax. To look
/// at: always composed, and as large as it says.
pub fn attention_weights(
    mut op: Attention,
    input: AttentionInput,
    params: AttentionParams,
) -> Result<Tensor<4>> {
    check_attention(&mut op, &input, &params)?;
    Ok(composed::attention(&op, input, params).1)
}

/// Q, K and V (B, H, n, D) as they stand in the products of attention: normalised, with coordinates in front. Linear attention takes its
/// softmaxes of these. To look at: always composed.
pub fn attention_projections(
    mut op: Attention,
    input: AttentionInput,
    params: AttentionParams,
) -> Result<[Tensor<4>; 3]> {
    check_attention(&mut op, &input, &params)?;
    Ok(composed::projections(&op, &input, &params))
}

/// Attention, residual, feed-forward network, residual: (B, n, d) to (B, n, d). Batch and points are read off x.
pub fn encoder_layer(
    mut op: EncoderLayer,
    input: AttentionInput,
    params: EncoderParams,
) -> Result<Tensor<3>> {
    check_attention(&mut op.attention, &input, &params.attention)?;
    let d = op.attention.d;
    if op.hidden == 0 {
        return Err(Error::setting("encoder layer: hidden = 0", "the feed-forward network needs a width"));
    }
    check_feed_forward(&params.feed_forward, [d, op.hidden, d])?;
    check_norm("norm after a residual", op.norm_after, &params.norm, d)?;
    if !has_kernels(&input.x) {
        return Ok(composed::encoder_layer(&op, input, params));
    }
    let call = Call { op: Op::Encoder(op), output: input.x.shape(), weighted: input.weights.is_some() };
    Ok(OperandTensors::attention(input).with(params.by_name().into_array()).run(call))
}

/// y = act([x | coordinates] W + b) over the last axis. Coordinates get no gradient.
pub fn linear<const D: usize>(
    x: Tensor<D>,
    coordinates: Option<Tensor<D>>,
    w: Tensor<2>,
    b: Tensor<1>,
    activation: Activation,
) -> Result<Tensor<D>> {
    let [all, outputs] = w.dims();
    let p = coordinates.as_ref().map_or(0, |c| c.dims()[D - 1]);
    let inputs = all.saturating_sub(p);
    match &coordinates {
        None => check_channels("linear x", &x, inputs)?,
        Some(coordinates) => {
            check_channels(&format!("linear x beside {p} coordinates"), &x, inputs)?;
            let mut expected = x.dims();
            expected[D - 1] = p;
            Error::check_shape("linear coordinates", &coordinates.dims(), &expected)?;
        }
    }
    Error::check_shape("linear b", &b.dims(), &[outputs])?;
    if !has_kernels(&x) {
        let x = match coordinates {
            Some(coordinates) => Tensor::cat(vec![x, coordinates], D - 1),
            None => x,
        };
        return Ok(composed::activated(composed::affine(x, w, b), activation));
    }
    let (rows, output) = with_channels(&x, outputs);
    let op = Op::Linear(Linear { rows, inputs, coordinates: p, outputs, activation });
    let mut operands = OperandTensors::new(x);
    coordinates.into_iter().for_each(|c| operands.push_constant(c));
    let params = linear::Parameters { w: some(w), b: some(b) };
    Ok(operands.with(params.into_array()).run(Call { op, output, weighted: false }))
}

/// y = drop(act(x W₁ + b₁)) W₂ + b₂ over the last axis.
pub fn feed_forward<const D: usize>(
    x: Tensor<D>,
    params: FeedForwardParams,
    activation: Activation,
    dropout: f32,
    key: Key,
) -> Result<Tensor<D>> {
    let ([inputs, hidden], [_, outputs]) = (params.w_1.dims(), params.w_2.dims());
    check_channels("feed-forward x", &x, inputs)?;
    check_feed_forward(&params, [inputs, hidden, outputs])?;
    let (rows, output) = with_channels(&x, outputs);
    let op = FeedForward { rows, inputs, hidden, outputs, activation, dropout, key };
    if !has_kernels(&x) {
        return Ok(composed::feed_forward(&op, x, params));
    }
    let operands = OperandTensors::new(x).with(params.by_name().into_array());
    Ok(operands.run(Call { op: Op::FeedForward(op), output, weighted: false }))
}

/// Spectral convolution in 1D: (B, n, i) to (B, n, o). Batch and points are read off x.
pub fn spectral_1d(mut op: SpectralConv1d, x: Tensor<3>, params: SpectralParams) -> Result<Tensor<3>> {
    let [batch, n, _] = x.dims();
    let (m, channels) = (op.modes, [op.inputs, op.outputs]);
    check_spectral(&x, &params, m, channels, op.pointwise)?;
    check_modes("spectral convolution", m, n / 2 + 1, &[n])?;
    (op.batch, op.n) = (batch, n);
    if !has_kernels(&x) {
        return Ok(composed::spectral_1d(&op, x, params));
    }
    let plan = PLANS_1D.get([n, m], || op.plan());
    Ok(run_spectral(Op::Spectral1d(op, plan), op.outputs, x, params))
}

/// Spectral convolution in 2D: (B, n₁, n₂, i) to (B, n₁, n₂, o). Batch and points are read off x.
pub fn spectral_2d(mut op: SpectralConv2d, x: Tensor<4>, params: SpectralParams) -> Result<Tensor<4>> {
    let [batch, n1, n2, _] = x.dims();
    let (m, channels) = (op.modes, [op.inputs, op.outputs]);
    check_spectral(&x, &params, 2 * m * m, channels, op.pointwise)?;
    check_modes("spectral convolution", m, n1.min(n2 / 2 + 1), &[n1, n2])?;
    (op.batch, op.n1, op.n2) = (batch, n1, n2);
    if !has_kernels(&x) {
        return Ok(composed::spectral_2d(&op, x, params));
    }
    let plan = PLANS_2D.get([n1, n2, m], || op.plan());
    Ok(run_spectral(Op::Spectral2d(op, plan), op.outputs, x, params))
}

/// Spectral convolution in 3D: (B, n₁, n₂, n₃, i) to (B, n₁, n₂, n₃, o). Batch and points are read off x.
pub fn spectral_3d(mut op: SpectralConv3d, x: Tensor<5>, params: SpectralParams) -> Result<Tensor<5>> {
    let [batch, n1, n2, n3, _] = x.dims();
    let (m, channels) = (op.modes, [op.inputs, op.outputs]);
    check_spectral(&x, &params, 4 * m * m * m, channels, op.pointwise)?;
    check_modes("spectral convolution", m, n1.min(n2).min(n3 / 2 + 1), &[n1, n2, n3])?;
    (op.batch, op.n1, op.n2, op.n3) = (batch, n1, n2, n3);
    if !has_kernels(&x) {
        return Ok(composed::spectral_3d(&op, x, params));
    }
    let plan = PLANS_3D.get([n1, n2, n3, m], || op.plan());
    Ok(run_spectral(Op::Spectral3d(op, plan), op.outputs, x, params))
}

fn run_spectral<const D: usize>(op: Op, outputs: usize, x: Tensor<D>, params: SpectralParams) -> Tensor<D> {
    let (_, output) = with_channels(&x, outputs);
    let operands = OperandTensors::new(x).with(params.by_name().into_array());
    operands.run(Call { op, output, weighted: false })
}

/// y = act(drop(conv(x))), 3 × 3, zero padding: (B, n₁, n₂, c) to (B, n₁, n₂, o), w (3, 3, c, o), b (o).
pub fn conv3x3(
    x: Tensor<4>,
    w: Tensor<4>,
    b: Option<Tensor<1>>,
    dropout: Option<Dropout>,
    activation: Activation,
) -> Result<Tensor<4>> {
    let ([batch, n1, n2, _], [k1, k2, inputs, outputs]) = (x.dims(), w.dims());
    Error::check_shape("convolution w", &[k1, k2], &[3, 3])?;
    check_channels("convolution x", &x, inputs)?;
    if let Some(b) = &b {
        Error::check_shape("convolution b", &b.dims(), &[outputs])?;
    }
    let bias = b.is_some();
    let op = Conv3x3 { batch, n1, n2, inputs, outputs, bias, dropout, activation, keep: false };
    if !has_kernels(&x) {
        return Ok(composed::conv3x3(&op, x, w, b));
    }
    let params = conv3x3::Parameters { w: some(w), b: b.and_then(some) };
    let operands = OperandTensors::new(x).with(params.into_array());
    let output = Shape::from([batch, n1, n2, outputs]);
    Ok(operands.run(Call { op: Op::Conv3x3(op), output, weighted: false }))
}

/// Bilinear resize with aligned corners and an activation at the end: (B, n₁, n₂, c) to (B, m₁, m₂, c).
pub fn resize(x: Tensor<4>, to: [usize; 2], activation: Activation) -> Result<Tensor<4>> {
    let [batch, n1, n2, channels] = x.dims();
    Error::check_filled("resize x", &x.dims())?;
    Error::check_filled("size to resize to", &to)?;
    if !has_kernels(&x) {
        return Ok(composed::resize(x, to, activation));
    }
    let plan = Arc::new(Resize::new([n1, n2], to, channels, activation));
    let output = Shape::from([batch, to[0], to[1], channels]);
    Ok(OperandTensors::new(x).run(Call { op: Op::Resize(plan, batch), output, weighted: false }))
}

/// Means over the cells of another grid, along axes that are periodic or closed: (B, n₁, n₂, c) to (B, m₁, m₂, c).
pub fn local_means(x: Tensor<4>, to: [usize; 2], periodic: [bool; 2]) -> Result<Tensor<4>> {
    let [batch, n1, n2, channels] = x.dims();
    Error::check_filled("local means x", &x.dims())?;
    Error::check_filled("grid of local means", &to)?;
    if !has_kernels(&x) {
        return Ok(composed::local_means(x, to, periodic));
    }
    let plan = Arc::new(LocalMeans::new([n1, n2], to, periodic, channels));
    let output = Shape::from([batch, to[0], to[1], channels]);
    Ok(OperandTensors::new(x).run(Call { op: Op::LocalMeans(plan, batch), output, weighted: false }))
}

/// The tensor times the mask of a dropout, position by position.
pub fn dropout<const D: usize>(x: Tensor<D>, dropout: Dropout) -> Tensor<D> {
    activate(x, dropout, Activation::None)
}

/// y = act(drop(x)), elementwise.
pub fn activate<const D: usize>(x: Tensor<D>, dropout: Dropout, activation: Activation) -> Tensor<D> {
    if !dropout.active() && activation == Activation::None {
        return x;
    }
    if !has_kernels(&x) {
        return composed::activated(composed::dropped(x, dropout), activation);
    }
    let output = x.shape();
    let op = Pointwise { len: output.num_elements(), dropout, activation };
    OperandTensors::new(x).run(Call { op: Op::Pointwise(op), output, weighted: false })
}

/// Gives the memory of a tensor that is no longer wanted to the next one of its length.
pub(crate) fn reuse<const D: usize>(tensor: Tensor<D>) {
    if has_kernels(&tensor) {
        spare::keep(plain(tensor));
    }
}

/// Whether the kernels can take x: on Flex and of f32.
fn has_kernels<const D: usize>(x: &Tensor<D>) -> bool {
    !COMPOSED_ONLY.get() && x.dtype() == DType::F32 && is_flex(&x.device())
}

fn is_flex(device: &Device) -> bool {
    matches!(device.clone().without_autodiff().as_dispatch(), DispatchDevice::Flex(_))
}

/// The parameters, each under the name that the kernels have for it; their fields have the order.
impl AttentionParams {
    fn by_name(self) -> attention::Parameters<Option<Operand>> {
        let [gamma_k, beta_k, gamma_qv, beta_qv] = norms(self.norm);
        let (w_o, b_o) = self.projection.unzip();
        attention::Parameters {
            w_q: some(self.w_q),
            b_q: some(self.b_q),
            w_k: some(self.w_k),
            b_k: some(self.b_k),
            w_v: some(self.w_v),
            b_v: some(self.b_v),
            gamma_k,
            beta_k,
            gamma_qv,
            beta_qv,
            w_o: w_o.and_then(some),
            b_o: b_o.and_then(some),
        }
    }
}

impl FeedForwardParams {
    fn by_name(self) -> feed_forward::Parameters<Option<Operand>> {
        let Self { w_1, b_1, w_2, b_2 } = self;
        feed_forward::Parameters { w_1: some(w_1), b_1: some(b_1), w_2: some(w_2), b_2: some(b_2) }
    }
}

impl EncoderParams {
    fn by_name(self) -> encoder::Parameters<Option<Operand>> {
        let [gamma_1, beta_1, gamma_2, beta_2] = norms(self.norm);
        let (attention, feed_forward) = (self.attention.by_name(), self.feed_forward.by_name());
        encoder::Parameters { attention, feed_forward, gamma_1, beta_1, gamma_2, beta_2 }
    }
}

impl SpectralParams {
    fn by_name(self) -> spectral::Parameters<Option<Operand>> {
        let (w, b) = self.pointwise.unzip();
        spectral::Parameters { weights: some(self.weights), w: w.and_then(some), b: b.and_then(some) }
    }
}

fn norms(norm: Option<[Tensor<1>; 4]>) -> [Option<Operand>; 4] {
    norm.map_or([const { None }; 4], |norm| norm.map(some))
}

fn some<const D: usize>(tensor: Tensor<D>) -> Option<Operand> {
    Some(tensor.into())
}

/// A tensor taken out of its wrapping, whatever its rank.
enum Operand {
    Plain(FlexTensor),
    Tracked(Tracked<Flex>, GradientCheckpointingStrategy),
}

impl<const D: usize> From<Tensor<D>> for Operand {
    fn from(tensor: Tensor<D>) -> Self {
        match tensor.gradient_checkpointing_strategy() {
            None => Self::Plain(plain(tensor)),
            Some(strategy) => Self::Tracked(tracked(tensor, strategy), strategy),
        }
    }
}

/// The tensors of a call. They are plain until the first one comes that is tracked; then the whole call is, and those that are
/// not are constants in it.
enum OperandTensors {
    Plain(Operands<FlexTensor>),
    Tracked(Operands<Tracked<Flex>>, GradientCheckpointingStrategy),
}

impl OperandTensors {
    fn new<const D: usize>(x: Tensor<D>) -> Self {
        let mut operands = Self::Plain(Operands { inputs: Vec::new(), constants: Vec::new() });
        operands.push(x.into());
        operands
    }

    fn attention(input: AttentionInput) -> Self {
        let mut operands = Self::new(input.x);
        input.coordinates.into_iter().for_each(|c| operands.push_constant(c));
        input.weights.into_iter().for_each(|w| operands.push_constant(w));
        operands
    }

    /// And the parameters that are there.
    fn with(mut self, params: impl IntoIterator<Item = Option<Operand>>) -> Self {
        params.into_iter().flatten().for_each(|operand| self.push(operand));
        self
    }

    fn push(&mut self, operand: Operand) {
        if let (Self::Plain(operands), Operand::Tracked(_, strategy)) = (&mut *self, &operand) {
            let constants =
                |tensors: &mut Vec<FlexTensor>| tensors.drain(..).map(Tracked::<Flex>::new).collect();
            let (inputs, constants) = (constants(&mut operands.inputs), constants(&mut operands.constants));
            *self = Self::Tracked(Operands { inputs, constants }, *strategy);
        }
        match (self, operand) {
            (Self::Plain(operands), Operand::Plain(tensor)) => operands.inputs.push(tensor),
            (Self::Tracked(operands, _), Operand::Tracked(tensor, _)) => operands.inputs.push(tensor),
            (Self::Tracked(operands, _), Operand::Plain(tensor)) => {
                operands.inputs.push(Tracked::<Flex>::new(tensor))
            }
            (Self::Plain(_), Operand::Tracked(..)) => unreachable!("the call is tracked by now"),
        }
    }

    fn push_constant<const D: usize>(&mut self, tensor: Tensor<D>) {
        match self {
            Self::Plain(operands) => operands.constants.push(plain(tensor)),
            Self::Tracked(operands, _) => operands.constants.push(Tracked::<Flex>::new(plain(tensor))),
        }
    }

    fn run<const D: usize>(self, call: Call) -> Tensor<D> {
        match self {
            Self::Plain(mut operands) => {
                let (y, _) = Flex::fused(&call, &operands);
                spare::keep(operands.inputs.swap_remove(0));
                Tensor::from_primitive::<Flex>(y)
            }
            Self::Tracked(operands, GradientCheckpointingStrategy::Disabled) => Tensor::from_primitive::<
                Autodiff<Flex, NoCheckpointing>,
            >(
                autodiff::tracked::<Flex, NoCheckpointing>(call, operands),
            ),
            Self::Tracked(operands, GradientCheckpointingStrategy::Balanced) => Tensor::from_primitive::<
                Autodiff<Flex, BalancedCheckpointing>,
            >(
                autodiff::tracked::<Flex, BalancedCheckpointing>(call, operands),
            ),
        }
    }
}

/// A tensor of the plain backend; what is tracked elsewhere is a constant here.
fn plain<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    tensor.without_autodiff().try_into_primitive::<Flex>().expect(SAME_DEVICE)
}

/// A tensor of the tracking backend.
fn tracked<const D: usize>(tensor: Tensor<D>, strategy: GradientCheckpointingStrategy) -> Tracked<Flex> {
    match strategy {
        GradientCheckpointingStrategy::Disabled => {
            tensor.try_into_primitive::<Autodiff<Flex, NoCheckpointing>>().expect(SAME_DEVICE)
        }
        GradientCheckpointingStrategy::Balanced => {
            tensor.try_into_primitive::<Autodiff<Flex, BalancedCheckpointing>>().expect(SAME_DEVICE)
        }
    }
}

const SAME_DEVICE: &str = "all tensors of an operation are f32 and on one device";

/// Plans of spectral convolutions, which depend on sizes alone: a few grids are in use at a time, so a short list will do.
struct Plans<K, P>(Mutex<Vec<(K, Arc<P>)>>);

static PLANS_1D: Plans<[usize; 2], Plan> = Plans(Mutex::new(Vec::new()));
static PLANS_2D: Plans<[usize; 3], Plan2d> = Plans(Mutex::new(Vec::new()));
static PLANS_3D: Plans<[usize; 4], Plan3d> = Plans(Mutex::new(Vec::new()));

impl<K: PartialEq, P> Plans<K, P> {
    fn get(&self, key: K, plan: impl FnOnce() -> P) -> Arc<P> {
        const MOST: usize = 16;
        // A panic while the list is held leaves it whole.
        let mut plans = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, found)) = plans.iter().find(|(known, _)| *known == key) {
            return found.clone();
        }
        let made = Arc::new(plan());
        if plans.len() == MOST {
            plans.remove(0);
        }
        plans.push((key, made.clone()));
        made
    }
}

/// The number of rows of x, and its shape with other channels.
fn with_channels<const D: usize>(x: &Tensor<D>, channels: usize) -> (usize, Shape) {
    let mut dims = x.dims();
    dims[D - 1] = channels;
    (dims[..D - 1].iter().product(), Shape::from(dims))
}

fn check_channels<const D: usize>(what: &str, x: &Tensor<D>, channels: usize) -> Result<()> {
    let mut expected = x.dims();
    expected[D - 1] = channels;
    Error::check_shape(what, &x.dims(), &expected)?;
    Error::check_filled(what, &expected)
}

fn check_attention(op: &mut Attention, input: &AttentionInput, params: &AttentionParams) -> Result<()> {
    let [batch, n, d] = input.x.dims();
    (op.batch, op.n) = (batch, n);
    check_channels("attention x", &input.x, op.d)?;
    if op.heads == 0 || !d.is_multiple_of(op.heads) {
        let what = format!("attention: {} heads for {d} features", op.heads);
        return Err(Error::setting(what, "the number of heads must divide the number of features"));
    }
    let coordinates = input.coordinates.as_ref().map(|c| c.dims());
    let expected = (op.coordinates > 0).then_some([batch, n, op.coordinates]);
    if coordinates != expected {
        return Err(Error::Shape {
            what: "attention coordinates".into(),
            expected: expected.map_or("none at all".into(), |shape| format!("{shape:?}")),
            found: coordinates.map_or(Vec::new(), |shape| shape.to_vec()),
        });
    }
    if let Some(weights) = &input.weights {
        Error::check_shape("quadrature weights", &weights.dims(), &[batch, n])?;
    }
    for (what, w) in [("w_q", &params.w_q), ("w_k", &params.w_k), ("w_v", &params.w_v)] {
        Error::check_shape(what, &w.dims(), &[d, d])?;
    }
    for (what, b) in [("b_q", &params.b_q), ("b_k", &params.b_k), ("b_v", &params.b_v)] {
        Error::check_shape(what, &b.dims(), &[d])?;
    }
    check_norm("norm inside the heads", op.norm != attention::Norm::None, &params.norm, d)?;
    if op.coordinates > 0 && !op.projection {
        return Err(Error::setting("attention with coordinates", "they need the output projection"));
    }
    if op.projection != params.projection.is_some() {
        return Err(Error::setting("output projection", "the parameters do not match the setting"));
    }
    if let Some((w_o, b_o)) = &params.projection {
        Error::check_shape("w_o", &w_o.dims(), &[op.heads * op.wide(), d])?;
        Error::check_shape("b_o", &b_o.dims(), &[d])?;
    }
    Ok(())
}

fn check_norm(what: &str, wanted: bool, params: &Option<[Tensor<1>; 4]>, d: usize) -> Result<()> {
    if wanted != params.is_some() {
        return Err(Error::setting(what, "the parameters do not match the setting"));
    }
    params.iter().flatten().try_for_each(|p| Error::check_shape(what, &p.dims(), &[d]))
}

fn check_feed_forward(params: &FeedForwardParams, [inputs, hidden, outputs]: [usize; 3]) -> Result<()> {
    if inputs * hidden * outputs == 0 {
        let what = format!("feed-forward network {inputs} to {hidden} to {outputs}");
        return Err(Error::setting(what, "no width may be zero"));
    }
    Error::check_shape("feed-forward w_1", &params.w_1.dims(), &[inputs, hidden])?;
    Error::check_shape("feed-forward b_1", &params.b_1.dims(), &[hidden])?;
    Error::check_shape("feed-forward w_2", &params.w_2.dims(), &[hidden, outputs])?;
    Error::check_shape("feed-forward b_2", &params.b_2.dims(), &[outputs])
}

fn check_spectral<const D: usize>(
    x: &Tensor<D>,
    params: &SpectralParams,
    modes: usize,
    [inputs, outputs]: [usize; 2],
    pointwise: bool,
) -> Result<()> {
    check_channels("spectral convolution x", x, inputs)?;
    Error::check_shape("spectral weights", &params.weights.dims(), &[modes, 2, inputs, outputs])?;
    if pointwise != params.pointwise.is_some() {
        return Err(Error::setting("pointwise path", "the parameters do not match the setting"));
    }
    let Some((w, b)) = &params.pointwise else { return Ok(()) };
    Error::check_shape("pointwise w", &w.dims(), &[inputs, outputs])?;
    Error::check_shape("pointwise b", &b.dims(), &[outputs])
}

fn check_modes(what: &str, modes: usize, most: usize, grid: &[usize]) -> Result<()> {
    if modes == 0 {
        return Err(Error::setting(format!("{what}: modes = 0"), "at least one mode is kept"));
    }
    if modes <= most {
        return Ok(());
    }
    Err(Error::Modes { what: what.into(), modes, most, grid: grid.to_vec() })
}
