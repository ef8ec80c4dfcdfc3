//! Tensors of the CPU backend as slices, and the kernels on them. Nowhere else does a tensor become a slice.

use std::cell::Cell;

use burn::backend::{Flex, TensorMetadata, flex::FlexTensor};
use burn::tensor::{Shape, TensorData};
use galerkin_kernels::{attention, par};

use super::extension::{Call, FusedOps, Op, Operands};
use super::spare;

impl FusedOps for Flex {
    fn fused(call: &Call, operands: &Operands<FlexTensor>) -> (FlexTensor, FlexTensor) {
        let operands = operands.clone().contiguous();
        let (x, params) = (slice(&operands.inputs[0]), in_turn(operands.inputs[1..].iter().map(slice)));
        let input = operands.input(call.weighted);
        let threads = par::threads();
        let mut y = spare::take(call.output.num_elements());
        let mut saved = spare::take(call.op.saved_len());
        with_workspace(call.op.workspace_len(threads), |workspace| match &call.op {
            Op::Attention(op) => op.forward(&op.lengths().map(params), input, &mut y, &mut saved, workspace),
            Op::Encoder(op) => op.forward(&op.lengths().map(params), input, &mut y, &mut saved, workspace),
            Op::Linear(op) => op.forward(&op.lengths().map(params), x, input.coordinates, &mut y, workspace),
            Op::FeedForward(op) => op.forward(&op.lengths().map(params), x, &mut y, workspace),
            Op::Spectral1d(op, plan) => {
                op.forward(plan, &op.lengths().map(params), x, &mut y, &mut saved, workspace)
            }
            Op::Spectral2d(op, plan) => {
                op.forward(plan, &op.lengths().map(params), x, &mut y, &mut saved, workspace)
            }
            Op::Spectral3d(op, plan) => {
                op.forward(plan, &op.lengths().map(params), x, &mut y, &mut saved, workspace)
            }
            Op::Conv3x3(op) => op.forward(x, op.lengths().map(params), &mut y, &mut saved, workspace),
            Op::Resize(plan, batch) => plan.forward(*batch, x, &mut y, workspace),
            Op::LocalMeans(plan, batch) => plan.forward(*batch, x, &mut y, workspace),
            Op::Pointwise(op) => op.forward(x, &mut y),
        });
        let saved_shape = Shape::from([saved.len()]);
        (tensor(y, call.output.clone()), tensor(saved, saved_shape))
    }

    fn fused_vjp(
        call: &Call,
        operands: Operands<FlexTensor>,
        saved: FlexTensor,
        output_gradient: FlexTensor,
        x_wanted: bool,
    ) -> Vec<Option<FlexTensor>> {
        let (mut operands, output_gradient) = (operands.contiguous(), contiguous(output_gradient));
        let dy = slice(&output_gradient);
        let kept = slice(&saved);
        let (x, params) = (slice(&operands.inputs[0]), in_turn(operands.inputs[1..].iter().map(slice)));
        let input = operands.input(call.weighted);
        let mut gradients: Vec<Vec<f32>> = operands.inputs.iter().map(|t| spare::take(len(t))).collect();
        let (dx, rest) = gradients.split_first_mut().expect("every operation has an x");
        let grads = in_turn(rest.iter_mut().map(Vec::as_mut_slice));
        with_workspace(call.op.workspace_len(par::threads()), |workspace| match &call.op {
            Op::Attention(op) => {
                let (params, grads) = (op.lengths().map(params), op.lengths().map(grads));
                op.backward(&params, input, kept, dy, dx, grads, workspace);
            }
            Op::Encoder(op) => {
                let (params, grads) = (op.lengths().map(params), op.lengths().map(grads));
                op.backward(&params, input, kept, dy, dx, grads, workspace);
            }
            Op::Linear(op) => {
                let (params, grads) = (op.lengths().map(params), op.lengths().map(grads));
                op.backward(&params, x, input.coordinates, dy, dx, grads, workspace);
            }
            Op::FeedForward(op) => {
                let (params, grads) = (op.lengths().map(params), op.lengths().map(grads));
                op.backward(&params, x, dy, dx, grads, workspace);
            }
            Op::Spectral1d(op, plan) => {
                let (params, grads) = (op.lengths().map(params), op.lengths().map(grads));
                op.backward(plan, &params, x, kept, dy, dx, grads, workspace);
            }
            Op::Spectral2d(op, plan) => {
                let (params, grads) = (op.lengths().map(params), op.lengths().map(grads));
                op.backward(plan, &params, x, kept, dy, dx, grads, workspace);
            }
            Op::Spectral3d(op, plan) => {
                let (params, grads) = (op.lengths().map(params), op.lengths().map(grads));
                op.backward(plan, &params, x, kept, dy, dx, grads, workspace);
            }
            Op::Conv3x3(op) => {
                let (params, grads) = (op.lengths().map(params), op.lengths().map(grads));
                let dx = x_wanted.then_some(dx.as_mut_slice());
                op.backward(x, params, kept, dy, dx, grads, workspace);
            }
            Op::Resize(plan, batch) => plan.backward(*batch, x, dy, dx, workspace),
            Op::LocalMeans(plan, batch) => plan.backward(*batch, dy, dx, workspace),
            Op::Pointwise(op) => op.backward(x, dy, dx),
        });
        let named = gradients.into_iter().zip(&operands.inputs).enumerate();
        let gradients = named
            .map(|(i, (values, like))| (i > 0 || x_wanted).then(|| tensor(values, like.shape())))
            .collect();
        [operands.inputs.swap_remove(0), saved, output_gradient].into_iter().for_each(spare::keep);
        gradients
    }
}

impl Op {
    fn saved_len(&self) -> usize {
        match self {
            Op::Attention(op) => op.saved_len(),
            Op::Encoder(op) => op.saved_len(),
            Op::Spectral1d(op, _) => op.saved_len(),
            Op::Spectral2d(op, _) => op.saved_len(),
            Op::Spectral3d(op, _) => op.saved_len(),
            Op::Conv3x3(op) => op.saved_len(),
            Op::Linear(_) | Op::FeedForward(_) | Op::Resize(..) | Op::LocalMeans(..) | Op::Pointwise(_) => 0,
        }
    }

    fn workspace_len(&self, threads: usize) -> usize {
        match self {
            Op::Attention(op) => op.workspace_len(threads),
            Op::Encoder(op) => op.workspace_len(threads),
            Op::Linear(op) => op.workspace_len(threads),
            Op::FeedForward(op) => op.workspace_len(threads),
            Op::Spectral1d(op, _) => op.workspace_len(threads),
            Op::Spectral2d(op, _) => op.workspace_len(threads),
            Op::Spectral3d(op, _) => op.workspace_len(threads),
            Op::Conv3x3(op) => op.workspace_len(threads),
            Op::Resize(plan, batch) => plan.workspace_len(*batch, threads),
            Op::LocalMeans(plan, _) => plan.workspace_len(threads),
            Op::Pointwise(_) => 0,
        }
    }
}

/// Runs `f` on this thread's workspace, which grows to the largest operation and then stays.
///
/// One per thread: operations of a model follow one another on the thread that runs it, and the memory of a layer is that of
/// the next. It is taken out of its place while in use, so that an operation started inside another (by a rayon task that this
/// thread stole) allocates its own instead of meeting it.
fn with_workspace(len: usize, f: impl FnOnce(&mut [f32])) {
    thread_local! {
        static WORKSPACE: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
    }
    let mut workspace = WORKSPACE.take();
    if workspace.len() < len {
        workspace = Vec::new();
        workspace.resize(len, 0.0);
    }
    f(&mut workspace[..len]);
    WORKSPACE.set(workspace);
}

fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("ops takes f32 tensors to the kernels, and they were made contiguous")
}

fn len(tensor: &FlexTensor) -> usize {
    tensor.shape().num_elements()
}

fn tensor(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

/// The same values, row-major.
fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}

impl Operands<FlexTensor> {
    fn contiguous(self) -> Self {
        let all = |tensors: Vec<FlexTensor>| tensors.into_iter().map(contiguous).collect();
        Operands { inputs: all(self.inputs), constants: all(self.constants) }
    }

    fn input(&self, weighted: bool) -> attention::Input<'_> {
        let (weights, coordinates) = match (weighted, self.constants.as_slice()) {
            (true, [rest @ .., weights]) => (Some(slice(weights)), rest),
            (_, constants) => (None, constants),
        };
        let coordinates = coordinates.first().map_or(&[][..], slice);
        attention::Input { x: slice(&self.inputs[0]), coordinates, weights }
    }
}

/// The slices one after the other, one for every length it is asked for; an empty one for a parameter that is absent, whose length is zero.
fn in_turn<S: Default>(mut slices: impl Iterator<Item = S>) -> impl FnMut(usize) -> S {
    move |len| if len > 0 { slices.next().expect("as many as the sizes say") } else { S::default() }
}
