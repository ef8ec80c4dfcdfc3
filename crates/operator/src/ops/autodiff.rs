//! The backward rule of every fused operation: call the kernel's own.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, tensor::FloatTensor};

use super::extension::{Call, FusedOps, Operands};

/// A tracked tensor; Burn does not export the type under a name of its own.
pub(crate) type Tracked<B> = FloatTensor<Autodiff<B>>;

/// The operation on tracked tensors.
pub(crate) fn tracked<B: FusedOps, C: CheckpointStrategy>(
    call: Call,
    operands: Operands<Tracked<B>>,
) -> Tracked<B> {
    // The graph wants the number of parents as a constant. 1: resize, local means, dropout and activation; 2, 3: convolution; 3: linear; 2, 4: spectral; 5:
    // feed-forward; 7 to 13: attention; 11 to 21: encoder layer.
    macro_rules! by_count {
        ($($n:literal)*) => {
            match operands.inputs.len() {
                $($n => tracked_inputs::<B, C, $n>(call, operands),)*
                n => unreachable!("no operation has {n} inputs"),
            }
        };
    }
    by_count!(1 2 3 4 5 7 9 11 13 15 17 19 21)
}

#[derive(Debug)]
struct Fused;

#[derive(Clone, Debug)]
struct State<T> {
    call: Call,
    operands: Operands<T>,
    saved: T,
}

impl<B: FusedOps, const N: usize> Backward<B, N> for Fused {
    type State = State<FloatTensor<B>>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let State { call, operands, saved } = ops.state;
        let output_gradient = grads.consume::<B>(&ops.node);
        let gradients = B::fused_vjp(&call, operands, saved, output_gradient, ops.parents[0].is_some());
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

fn tracked_inputs<B: FusedOps, C: CheckpointStrategy, const N: usize>(
    call: Call,
    operands: Operands<Tracked<B>>,
) -> Tracked<B> {
    let (inputs, guards): (Vec<_>, Vec<_>) = operands.inputs.into_iter().map(|t| t.into_parts()).unzip();
    let constants = operands.constants.into_iter().map(|t| t.into_primitive()).collect();
    let operands = Operands { inputs, constants };
    let call = call.tracked();
    let (output, saved) = B::fused(&call, &operands);
    let Ok(guards) = <[_; N]>::try_from(guards) else { unreachable!("counted by the caller") };
    match <Fused as Backward<B, N>>::prepare::<C>(Fused, guards).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(State { call, operands, saved }, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
