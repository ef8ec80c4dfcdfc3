//! The interface between tensors and fused kernels: an operation as data, and the two methods of a backend that has it.
//!
//! Burn's `#[backend_extension]` takes a fixed list of tensors per method and panics on backends it was not told of. An
//! encoder layer has between 11 and 21 differentiable inputs, and a backend without kernels has the composition instead;
//! so the operation is a value here, its tensors are a list, and `ops` takes the primitives out of the tensors itself.

use std::sync::Arc;

use burn::backend::{Backend, tensor::FloatTensor};
use burn::tensor::Shape;
use galerkin_kernels::attention::Attention;
use galerkin_kernels::conv3x3::Conv3x3;
use galerkin_kernels::encoder::EncoderLayer;
use galerkin_kernels::feed_forward::FeedForward;
use galerkin_kernels::linear::Linear;
use galerkin_kernels::local_means::LocalMeans;
use galerkin_kernels::pointwise::Pointwise;
use galerkin_kernels::resize::Resize;
use galerkin_kernels::spectral::{Plan, Plan2d, Plan3d, SpectralConv1d, SpectralConv2d, SpectralConv3d};

/// A fused operation with its sizes. Inputs are x and then the parameters in the order of the kernel's fields, those that
/// are absent left out; constants are coordinates and quadrature weights, as far as there are any.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Attention(Attention),
    Encoder(EncoderLayer),
    Linear(Linear),
    FeedForward(FeedForward),
    Spectral1d(SpectralConv1d, Arc<Plan>),
    Spectral2d(SpectralConv2d, Arc<Plan2d>),
    Spectral3d(SpectralConv3d, Arc<Plan3d>),
    Conv3x3(Conv3x3),
    /// With the number of samples.
    Resize(Arc<Resize>, usize),
    /// With the number of samples.
    LocalMeans(Arc<LocalMeans>, usize),
    Pointwise(Pointwise),
}

/// An operation and the shape of its output.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub op: Op,
    pub output: Shape,
    /// Whether the last constant is the quadrature weights.
    pub weighted: bool,
}

impl Call {
    /// The same call for an operation whose backward pass will be wanted.
    pub fn tracked(mut self) -> Self {
        match &mut self.op {
            Op::Encoder(op) => *op = keeping(*op),
            // From few channels z is cheap to compute again: of the networks here, from the one that comes in, on the finest grid.
            Op::Conv3x3(op) => op.keep = op.inputs >= 16,
            _ => {}
        }
        self
    }
}

/// An encoder layer keeps at most so many values (40 MB) of what its backward pass would compute again: a training step on 2048 points then
/// takes about a tenth less time, while the memory of large grids stays that of their outputs.
const MOST_KEPT: usize = 10 << 20;

/// The layer, keeping as much as is worth it. The results are the same bits.
pub(crate) fn keeping(op: EncoderLayer) -> EncoderLayer {
    let with = EncoderLayer { attention: Attention { keep: true, ..op.attention }, ..op };
    if with.saved_len() <= MOST_KEPT { with } else { op }
}

/// What an operation looks at.
#[derive(Clone, Debug)]
pub(crate) struct Operands<T> {
    /// x and the parameters: the tensors that get gradients.
    pub inputs: Vec<T>,
    /// Coordinates and quadrature weights.
    pub constants: Vec<T>,
}

/// A backend with fused kernels.
pub(crate) trait FusedOps: Backend {
    /// The output, and whatever the backward pass wants to find again.
    fn fused(call: &Call, operands: &Operands<FloatTensor<Self>>) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradients of the inputs from that of the output. The gradient of x may be left out if nobody wants it.
    fn fused_vjp(
        call: &Call,
        operands: Operands<FloatTensor<Self>>,
        saved: FloatTensor<Self>,
        output_gradient: FloatTensor<Self>,
        x_wanted: bool,
    ) -> Vec<Option<FloatTensor<Self>>>;
}
