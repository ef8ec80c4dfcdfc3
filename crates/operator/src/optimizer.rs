//! Adam on the parameters of a model, with clipping by the norm of all gradients together.
//!
//! The optimiser holds the weights as plain arrays beside its moments, in the order in which the model shows them, and hands copies to
//! the model: a checkpoint is these arrays, and a step is one pass of the kernel over them.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor};
use galerkin_kernels::adam::{Adam, Slot, Step};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::reference::{replace, to_vec};
use crate::schedule::Rates;
use crate::settings::settings;

settings! {
    /// Adam; AdamW with a weight decay.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct OptimizerConfig {
        /// decay of the second moment
        pub beta2: f64,
        /// added to its root
        pub eps: f64,
        /// decoupled, as in AdamW; 0: Adam
        pub weight_decay: f64,
        /// gradients with a larger norm, all together, are scaled down to it
        pub max_norm: f64,
    }
}

impl OptimizerConfig {
    /// `Ok` if its numbers have a meaning.
    pub fn check(&self) -> Result<()> {
        for (name, value, fits, rule) in [
            ("beta2", self.beta2, (0.0..1.0).contains(&self.beta2), "it lies in [0, 1)"),
            ("eps", self.eps, self.eps > 0.0 && self.eps.is_finite(), "it is positive"),
            (
                "weight_decay",
                self.weight_decay,
                self.weight_decay >= 0.0 && self.weight_decay.is_finite(),
                "it is not negative",
            ),
            ("max_norm", self.max_norm, self.max_norm > 0.0 && self.max_norm.is_finite(), "it is positive"),
        ] {
            if !fits {
                return Err(Error::setting(format!("optimizer.{name} = {value}"), rule));
            }
        }
        Ok(())
    }
}

impl Default for OptimizerConfig {
    /// As the paper's code has it.
    fn default() -> Self {
        Self { beta2: 0.999, eps: 1e-8, weight_decay: 0.0, max_norm: 0.999 }
    }
}

/// The weights of a model and what Adam remembers of their gradients.
#[derive(Clone, Debug)]
pub struct Optimizer {
    adam: Adam,
    states: Vec<ParameterState>,
    ids: Vec<ParamId>,
    /// Sums of the gradients since the last step, empty before the first.
    gradients: Vec<Vec<f32>>,
    collected: u32,
    steps: u64,
}

/// One parameter, row-major as the model has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterState {
    /// The weights.
    pub weights: Vec<f32>,
    /// Running mean of the gradient.
    pub first_moment: Vec<f32>,
    /// Running mean of its square.
    pub second_moment: Vec<f32>,
}

impl Optimizer {
    /// For the model as it is, before the first step.
    pub fn new<M: Module>(config: &OptimizerConfig, model: &M) -> Self {
        struct Collect(Vec<ParamId>, Vec<ParameterState>);
        impl ModuleVisitor for Collect {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let weights = to_vec(param.val());
                let zeros = vec![0.0; weights.len()];
                self.0.push(param.id);
                self.1.push(ParameterState { weights, first_moment: zeros.clone(), second_moment: zeros });
            }
        }
        let mut collect = Collect(Vec::new(), Vec::new());
        model.visit(&mut collect);
        let Collect(ids, states) = collect;
        let &OptimizerConfig { beta2, eps, weight_decay, max_norm } = config;
        let adam = Adam { beta2, eps, weight_decay, max_norm };
        Self { adam, gradients: vec![Vec::new(); ids.len()], states, ids, collected: 0, steps: 0 }
    }

    /// Adds the gradients of a batch. A parameter without one is taken to have the gradient zero.
    pub fn collect<M: Module>(&mut self, model: &M, gradients: Gradients) {
        struct Collect<'a>(Gradients, std::slice::IterMut<'a, Vec<f32>>);
        impl ModuleVisitor for Collect<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let sum = self.1.next().expect("the model the optimiser was made for");
                let Some(gradient) = param.val().grad_remove(&mut self.0) else { return };
                let gradient = to_vec(gradient);
                match sum.is_empty() {
                    true => *sum = gradient,
                    false => sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g),
                }
            }
        }
        model.visit(&mut Collect(gradients, self.gradients.iter_mut()));
        self.collected += 1;
    }

    /// One step with the mean of the gradients collected since the last one. Gives the model with the new weights, and the norm
    /// of the gradient before clipping.
    ///
    /// If the norm is not finite, nothing changes: neither the weights nor the state.
    pub fn step<M: Module>(&mut self, model: M, rates: Rates) -> (M, f64) {
        let mean = 1.0 / self.collected.max(1) as f32;
        let mut slots = Vec::with_capacity(self.states.len());
        for (state, gradient) in self.states.iter_mut().zip(&mut self.gradients) {
            gradient.resize(state.weights.len(), 0.0);
            if self.collected > 1 {
                gradient.iter_mut().for_each(|g| *g *= mean);
            }
            slots.push(Slot {
                param: &mut state.weights,
                grad: gradient,
                m: &mut state.first_moment,
                v: &mut state.second_moment,
            });
        }
        let step = Step { lr: rates.rate, beta1: rates.beta1, t: self.steps + 1 };
        let norm = self.adam.step(step, &mut slots);
        self.collected = 0;
        // After a step the gradients are copies of the weights, which the model takes as they are.
        let copies: Vec<Vec<f32>> = self.gradients.iter_mut().map(std::mem::take).collect();
        if !norm.is_finite() {
            return (model, norm);
        }
        self.steps += 1;
        (self.replace(model, copies), norm)
    }

    /// The model with the optimiser's weights.
    pub fn apply<M: Module>(&self, model: M) -> M {
        self.replace(model, self.states.iter().map(|state| state.weights.clone()).collect())
    }

    /// The model with other values, in the order of the [`states`](Self::states).
    pub(crate) fn replace<M: Module>(&self, model: M, values: Vec<Vec<f32>>) -> M {
        replace(model, self.ids.iter().copied().zip(values).collect())
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Weights and moments, in the order in which the model shows its parameters.
    pub fn states(&self) -> &[ParameterState] {
        &self.states
    }

    /// Goes on from a saved state.
    pub fn restore(&mut self, steps: u64, states: Vec<ParameterState>) -> Result<()> {
        let lengths = |s: &ParameterState| [&s.weights, &s.first_moment, &s.second_moment].map(Vec::len);
        let [expected, found]: [Vec<_>; 2] =
            [&self.states, &states].map(|states| states.iter().map(lengths).collect());
        if expected != found {
            return Err(Error::setting("state of the optimiser", "it does not belong to this model"));
        }
        (self.steps, self.states) = (steps, states);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::Builder;
    use crate::layers::{Activation, Linear, LinearConfig};
    use burn::tensor::{Device, TensorData};

    fn layer() -> Linear {
        let config = LinearConfig { inputs: 3, outputs: 2 };
        config.init(&mut Builder::new(5, &Device::flex().autodiff())).unwrap()
    }

    fn gradients(model: &Linear, scale: f32) -> Gradients {
        let x = TensorData::new(vec![scale, 2.0, -1.0], [1, 3]);
        let x = Tensor::<2>::from_data(x, &Device::flex().autodiff());
        model.forward(x, Activation::None).unwrap().square().sum().backward()
    }

    const PACE: Rates = Rates { rate: 0.1, beta1: 0.9 };

    #[test]
    fn batches_collected_together_count_with_their_mean() {
        let run = |scales: &[f32]| {
            let model = layer();
            let mut optimizer = Optimizer::new(&OptimizerConfig::default(), &model);
            for scale in scales {
                optimizer.collect(&model, gradients(&model, *scale));
            }
            let (model, norm) = optimizer.step(model, PACE);
            (to_vec(model.weight.val()), norm)
        };
        assert_eq!(run(&[1.0, 1.0]), run(&[1.0]));
        let ((_, one), (_, other), (_, both)) = (run(&[1.0]), run(&[-1.0]), run(&[1.0, -1.0]));
        assert!(both > 0.0 && both < one.max(other), "{one} {other} {both}");
    }

    #[test]
    fn a_restored_state_goes_on_with_the_same_bits() {
        let mut model = layer();
        let mut optimizer = Optimizer::new(&OptimizerConfig::default(), &model);
        let step = |optimizer: &mut Optimizer, model: Linear| {
            optimizer.collect(&model, gradients(&model, 1.0));
            optimizer.step(model, PACE).0
        };
        model = step(&mut optimizer, model);
        let (steps, states) = (optimizer.steps(), optimizer.states().to_vec());
        let went_on = to_vec(step(&mut optimizer, model).weight.val());
        let fresh = layer();
        let mut restored = Optimizer::new(&OptimizerConfig::default(), &fresh);
        restored.restore(steps, states.clone()).unwrap();
        let fresh = restored.apply(fresh);
        assert_eq!(to_vec(step(&mut restored, fresh).weight.val()), went_on);
        assert!(restored.restore(steps, states[1..].to_vec()).is_err());
    }

    #[test]
    fn a_gradient_that_is_not_finite_changes_nothing() {
        let model = layer();
        let before = to_vec(model.weight.val());
        let mut optimizer = Optimizer::new(&OptimizerConfig::default(), &model);
        optimizer.collect(&model, gradients(&model, f32::NAN));
        let (model, norm) = optimizer.step(model, PACE);
        assert!(norm.is_nan());
        assert_eq!(to_vec(model.weight.val()), before);
        assert_eq!(optimizer.steps(), 0);
    }
}
