//! The optimisers on the parameters of a model: Adam for vectors and small matrices, and for the others Adam, SOAP or Muon; with clipping by the
//! norm of all gradients together.
//!
//! The optimiser holds the weights as plain arrays beside its moments, in the order in which the model shows them, and hands copies to
//! the model: a checkpoint is these arrays, and a step is one pass of the kernels over them.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor};
use galerkin_kernels::adam::{Adam, Slot, Step, gradient_norm};
use galerkin_kernels::muon::{self, Muon};
use galerkin_kernels::par;
use galerkin_kernels::soap::{self, Soap};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::reference::{replace, to_vec};
use crate::schedule::Rates;
use crate::settings::settings;

/// Which optimiser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OptimizerConfig {
    /// Adam; AdamW with a weight decay.
    Adam(AdamConfig),
    /// Adam in the eigenbasis of Shampoo's factors.
    Soap(SoapConfig),
    /// Momentum with equal singular values.
    Muon(MuonConfig),
}

settings! {
    /// Adam.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct AdamConfig {
        /// decay of the second moment
        #[serde(default = "beta2")]
        pub beta2: f64,
        /// added to its root
        #[serde(default = "eps")]
        pub eps: f64,
        /// decoupled, as in AdamW; 0: none
        #[serde(default)]
        pub weight_decay: f64,
        /// gradients with a larger norm, all together, are scaled down to it
        #[serde(default = "max_norm")]
        pub max_norm: f64,
    }
}

settings! {
    /// SOAP on matrices, convolutions and spectral weights; Adam with the same numbers on the rest.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SoapConfig {
        /// decay of the second moment and of Shampoo's factors
        #[serde(default = "decay")]
        pub decay: f64,
        /// steps between two refreshes of the bases
        #[serde(default = "refresh")]
        pub refresh: u64,
        /// added to its root
        #[serde(default = "eps")]
        pub eps: f64,
        /// decoupled, as in AdamW; 0: none
        #[serde(default)]
        pub weight_decay: f64,
        /// gradients with a larger norm, all together, are scaled down to it
        #[serde(default = "max_norm")]
        pub max_norm: f64,
    }
}

settings! {
    /// Muon on matrices, convolutions and spectral weights; Adam on the rest.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct MuonConfig {
        /// momentum of matrices
        #[serde(default = "momentum")]
        pub momentum: f64,
        /// decay of the second moment
        #[serde(default = "beta2")]
        pub beta2: f64,
        /// added to its root
        #[serde(default = "eps")]
        pub eps: f64,
        /// decoupled, as in AdamW; 0: none
        #[serde(default)]
        pub weight_decay: f64,
        /// gradients with a larger norm, all together, are scaled down to it
        #[serde(default = "max_norm")]
        pub max_norm: f64,
    }
}

// As the paper's code has them.
fn beta2() -> f64 {
    0.999
}
fn eps() -> f64 {
    1e-8
}
fn max_norm() -> f64 {
    0.999
}
// As the accuracy of the presets was measured with.
fn decay() -> f64 {
    0.95
}
fn refresh() -> u64 {
    10
}
fn momentum() -> f64 {
    0.95
}

impl OptimizerConfig {
    /// `Ok` if its numbers have a meaning.
    pub fn check(&self) -> Result<()> {
        let share = |value: f64| (0.0..1.0).contains(&value);
        let (name, decay) = match self {
            Self::Adam(_) | Self::Muon(_) => ("beta2", self.adam().beta2),
            Self::Soap(_) => ("decay", self.adam().beta2),
        };
        let (momentum, refresh) = match self {
            Self::Muon(config) => (config.momentum, 1),
            Self::Soap(config) => (0.0, config.refresh),
            Self::Adam(_) => (0.0, 1),
        };
        let Adam { eps, weight_decay, max_norm, .. } = self.adam();
        for (name, value, fits, rule) in [
            (name, decay, share(decay), "it lies in [0, 1)"),
            ("momentum", momentum, share(momentum), "it lies in [0, 1)"),
            ("refresh", refresh as f64, refresh > 0, "it is at least 1"),
            ("eps", eps, eps > 0.0 && eps.is_finite(), "it is positive"),
            (
                "weight_decay",
                weight_decay,
                weight_decay >= 0.0 && weight_decay.is_finite(),
                "it is not negative",
            ),
            ("max_norm", max_norm, max_norm > 0.0 && max_norm.is_finite(), "it is positive"),
        ] {
            if !fits {
                return Err(Error::setting(format!("optimizer.{name} = {value}"), rule));
            }
        }
        Ok(())
    }

    /// What becomes of vectors.
    fn adam(&self) -> Adam {
        match *self {
            Self::Adam(AdamConfig { beta2, eps, weight_decay, max_norm })
            | Self::Muon(MuonConfig { beta2, eps, weight_decay, max_norm, .. })
            | Self::Soap(SoapConfig { decay: beta2, eps, weight_decay, max_norm, .. }) => {
                Adam { beta2, eps, weight_decay, max_norm }
            }
        }
    }

    /// Bytes of the state of so many parameters beside two moments, an estimate: SOAP's factors and bases have four values for each of a square matrix and some
    /// eight for each of a long one.
    pub(crate) fn more_memory(&self, parameters: u64) -> u64 {
        match self {
            Self::Adam(_) | Self::Muon(_) => 0,
            Self::Soap(_) => parameters.saturating_mul(8 * 4),
        }
    }
}

impl Default for AdamConfig {
    /// As the paper's code has it.
    fn default() -> Self {
        Self { beta2: beta2(), eps: eps(), weight_decay: 0.0, max_norm: max_norm() }
    }
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self::Adam(AdamConfig::default())
    }
}

/// A parameter as a stack of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matrices {
    count: usize,
    rows: usize,
    cols: usize,
}

impl Matrices {
    /// A matrix with fewer rows or columns has little to precondition.
    const LEAST: usize = 8;

    /// `None` of what is left to Adam. A weight (in, out) is one matrix; so is a convolution (3, 3, in, out), with the nine taps of all channels as
    /// rows; spectral weights (modes, 2, in, out) are one for every mode, with real and imaginary parts as rows.
    fn of(shape: &[usize]) -> Option<Self> {
        let all = match *shape {
            [rows, cols] => Self { count: 1, rows, cols },
            [3, 3, inputs, cols] => Self { count: 1, rows: 9 * inputs, cols },
            [count, 2, inputs, cols] => Self { count, rows: 2 * inputs, cols },
            _ => return None,
        };
        (all.rows.min(all.cols) >= Self::LEAST).then_some(all)
    }
}

/// The weights of a model and what the optimiser remembers of their gradients.
#[derive(Clone, Debug)]
pub struct Optimizer {
    config: OptimizerConfig,
    states: Vec<ParameterState>,
    forms: Vec<Option<Matrices>>,
    ids: Vec<ParamId>,
    /// Sums of the gradients since the last step, empty before the first.
    gradients: Vec<Vec<f32>>,
    collected: u32,
    steps: u64,
    workspace: Vec<f32>,
}

/// One parameter, row-major as the model has it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ParameterState {
    /// The weights.
    pub weights: Vec<f32>,
    /// Running mean of the gradient; SOAP's in its bases.
    pub first_moment: Vec<f32>,
    /// Running mean of its square; SOAP's in its bases. Muon's matrices have none.
    pub second_moment: Vec<f32>,
    /// Shampoo's factors of every matrix, SOAP's alone.
    pub factors: Vec<f32>,
    /// SOAP's bases of every matrix.
    pub bases: Vec<f32>,
}

impl Optimizer {
    /// For the model as it is, before the first step.
    pub fn new<M: Module>(config: &OptimizerConfig, model: &M) -> Self {
        struct Collect(Vec<ParamId>, Vec<(Vec<f32>, Vec<usize>)>);
        impl ModuleVisitor for Collect {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0.push(param.id);
                self.1.push((to_vec(param.val()), param.val().dims().to_vec()));
            }
        }
        let mut collect = Collect(Vec::new(), Vec::new());
        model.visit(&mut collect);
        let Collect(ids, parameters) = collect;
        let preconditioned = !matches!(config, OptimizerConfig::Adam(_));
        let form = |shape: &[usize]| Matrices::of(shape).filter(|_| preconditioned);
        let forms: Vec<_> = parameters.iter().map(|(_, shape)| form(shape)).collect();
        let state = |(weights, form): (Vec<f32>, &Option<Matrices>)| {
            let zeros = vec![0.0; weights.len()];
            let mut state = ParameterState { first_moment: zeros.clone(), weights, ..Default::default() };
            match (config, form) {
                (OptimizerConfig::Muon(_), Some(_)) => {}
                (OptimizerConfig::Soap(_), Some(m)) => {
                    state.second_moment = zeros;
                    state.factors = vec![0.0; m.count * soap::factors_len(m.rows, m.cols)];
                    state.bases = soap::start(m.rows, m.cols).repeat(m.count);
                }
                _ => state.second_moment = zeros,
            }
            state
        };
        let weights = parameters.into_iter().map(|(weights, _)| weights);
        Self {
            config: config.clone(),
            states: weights.zip(&forms).map(state).collect(),
            forms,
            gradients: vec![Vec::new(); ids.len()],
            ids,
            collected: 0,
            steps: 0,
            workspace: Vec::new(),
        }
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
        for (state, gradient) in self.states.iter().zip(&mut self.gradients) {
            gradient.resize(state.weights.len(), 0.0);
            if self.collected > 1 {
                gradient.iter_mut().for_each(|g| *g *= mean);
            }
        }
        self.collected = 0;
        let norm = gradient_norm(self.gradients.iter().map(Vec::as_slice));
        if norm.is_finite() {
            let step = Step { lr: rates.rate, beta1: rates.beta1, t: self.steps + 1 };
            self.take_step(step, self.config.adam().clip(norm));
        }
        // After a step the gradients are copies of the weights, which the model takes as they are.
        let copies: Vec<Vec<f32>> = self.gradients.iter_mut().map(std::mem::take).collect();
        if !norm.is_finite() {
            return (model, norm);
        }
        self.steps += 1;
        (self.replace(model, copies), norm)
    }

    /// Every parameter goes to its kernel.
    fn take_step(&mut self, step: Step, clip: f32) {
        let (mut slots, mut soaps, mut muons) = (Vec::new(), Vec::new(), Vec::new());
        let parameters = self.states.iter_mut().zip(&mut self.gradients).zip(&self.forms);
        for ((state, gradient), form) in parameters {
            let ParameterState { weights, first_moment: m, second_moment: v, factors, bases } = state;
            match (&self.config, form) {
                (OptimizerConfig::Soap(_), &Some(Matrices { rows, cols, .. })) => {
                    let (len, factors_len) = (rows * cols, soap::factors_len(rows, cols));
                    let arrays = weights.chunks_exact_mut(len).zip(gradient.chunks_exact_mut(len));
                    let moments = m.chunks_exact_mut(len).zip(v.chunks_exact_mut(len));
                    let turned =
                        factors.chunks_exact_mut(factors_len).zip(bases.chunks_exact_mut(factors_len));
                    for (((param, grad), (m, v)), (factors, bases)) in arrays.zip(moments).zip(turned) {
                        soaps.push(soap::Matrix { rows, cols, param, grad, m, v, factors, bases });
                    }
                }
                (OptimizerConfig::Muon(_), &Some(Matrices { rows, cols, .. })) => {
                    let len = rows * cols;
                    let arrays = weights.chunks_exact_mut(len).zip(gradient.chunks_exact_mut(len));
                    for ((param, grad), m) in arrays.zip(m.chunks_exact_mut(len)) {
                        muons.push(muon::Matrix { rows, cols, param, grad, m });
                    }
                }
                _ => slots.push(Slot { param: weights, grad: gradient, m, v }),
            }
        }
        let (adam, threads) = (self.config.adam(), par::threads());
        let needed = Soap::workspace_len(&soaps, threads).max(Muon::workspace_len(&muons, threads));
        if self.workspace.len() < needed {
            self.workspace.resize(needed, 0.0);
        }
        adam.apply(step, clip, &mut slots);
        match &self.config {
            OptimizerConfig::Adam(_) => {}
            OptimizerConfig::Soap(config) => {
                Soap { adam, refresh: config.refresh }.apply(step, clip, &mut soaps, &mut self.workspace);
            }
            OptimizerConfig::Muon(config) => {
                let muon = Muon { momentum: config.momentum, weight_decay: config.weight_decay };
                muon.apply(step, clip, &mut muons, &mut self.workspace);
            }
        }
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

    /// Weights with their state, in the order in which the model shows its parameters.
    pub fn states(&self) -> &[ParameterState] {
        &self.states
    }

    /// Goes on from a saved state.
    pub fn restore(&mut self, steps: u64, states: Vec<ParameterState>) -> Result<()> {
        let lengths = |s: &ParameterState| {
            [&s.weights, &s.first_moment, &s.second_moment, &s.factors, &s.bases].map(Vec::len)
        };
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

    /// Adam, SOAP with a refresh every other step, Muon.
    fn kinds() -> [OptimizerConfig; 3] {
        let soap = SoapConfig { decay: 0.9, refresh: 2, eps: 1e-8, weight_decay: 0.01, max_norm: 0.5 };
        let AdamConfig { beta2, eps, weight_decay, max_norm } = AdamConfig::default();
        let muon = MuonConfig { momentum: 0.9, beta2, eps, weight_decay, max_norm };
        [OptimizerConfig::default(), OptimizerConfig::Soap(soap), OptimizerConfig::Muon(muon)]
    }

    /// Large enough for matrices.
    fn wide() -> Linear {
        let config = LinearConfig { inputs: 8, outputs: 9 };
        config.init(&mut Builder::new(5, &Device::flex().autodiff())).unwrap()
    }

    fn wide_gradients(model: &Linear, step: usize) -> Gradients {
        let x: Vec<f32> = (0..24).map(|i| ((i * 7 + step * 5) as f32).sin()).collect();
        let x = Tensor::<2>::from_data(TensorData::new(x, [3, 8]), &Device::flex().autodiff());
        model.forward(x, Activation::None).unwrap().square().sum().backward()
    }

    #[test]
    fn a_restored_state_goes_on_with_the_same_bits() {
        for config in kinds() {
            let take = |optimizer: &mut Optimizer, model: Linear, step: usize| {
                optimizer.collect(&model, wide_gradients(&model, step));
                optimizer.step(model, PACE).0
            };
            let mut model = wide();
            let mut optimizer = Optimizer::new(&config, &model);
            for step in 0..3 {
                model = take(&mut optimizer, model, step);
            }
            let (steps, states) = (optimizer.steps(), optimizer.states().to_vec());
            let went_on = to_vec(take(&mut optimizer, model, 3).weight.val());
            let fresh = wide();
            let mut restored = Optimizer::new(&config, &fresh);
            restored.restore(steps, states.clone()).unwrap();
            let fresh = restored.apply(fresh);
            assert_eq!(to_vec(take(&mut restored, fresh, 3).weight.val()), went_on, "{config:?}");
            assert!(restored.restore(steps, states[1..].to_vec()).is_err());
            // The state of one optimiser is not that of another.
            for other in kinds().into_iter().filter(|other| *other != config) {
                let mut other = Optimizer::new(&other, &wide());
                assert!(other.restore(steps, states.clone()).is_err(), "{config:?}");
            }
        }
    }

    #[test]
    fn every_optimiser_goes_down() {
        for config in kinds() {
            let mut model = wide();
            let mut optimizer = Optimizer::new(&config, &model);
            let loss = |model: &Linear| {
                let x = Tensor::<2>::ones([1, 8], &Device::flex().autodiff());
                model.forward(x, Activation::None).unwrap().square().sum().into_scalar::<f32>()
            };
            let before = loss(&model);
            for _ in 0..40 {
                let x = Tensor::<2>::ones([1, 8], &Device::flex().autodiff());
                let gradients = model.forward(x, Activation::None).unwrap().square().sum().backward();
                optimizer.collect(&model, gradients);
                model = optimizer.step(model, Rates { rate: 0.02, beta1: 0.9 }).0;
            }
            assert!(loss(&model) < 0.2 * before, "{config:?}: {before} to {}", loss(&model));
        }
    }

    #[test]
    fn parameters_are_stacks_of_matrices() {
        let of = |shape: &[usize]| Matrices::of(shape).map(|m| (m.count, m.rows, m.cols));
        assert_eq!(of(&[96, 192]), Some((1, 96, 192)));
        assert_eq!(of(&[3, 3, 24, 48]), Some((1, 216, 48)));
        assert_eq!(of(&[16, 2, 96, 48]), Some((16, 192, 48)));
        // A bias, a first layer of one input, an output of one channel.
        assert_eq!((of(&[96]), of(&[1, 96]), of(&[3, 3, 24, 1])), (None, None, None));
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
