//! Weights of the paper's PyTorch code: its names, its layouts, and the way from them to ours and back.
//!
//! Every layer lists its parameters as [`Entry`]s, in one place each, and everything else follows: reading a state dict with
//! every name and shape checked, and writing weights or gradients under the reference's names.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor, TensorData};
pub use galerkin_data::Array;
use galerkin_kernels::activation::Activation;
use galerkin_kernels::conv3x3::{weights_from_torch, weights_to_torch};
use galerkin_kernels::dropout::Key;
use galerkin_kernels::spectral::{SpectralConv1d, SpectralConv2d, SpectralConv3d};

use crate::error::Mismatch;
use crate::ops;

/// One of our parameters and the arrays of the reference that hold it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Our parameter.
    pub id: ParamId,
    /// Names in the reference's state dict: one, or one per head or per block.
    pub names: Vec<String>,
    /// How the values are arranged.
    pub layout: Layout,
}

/// How the reference arranges the values of a parameter, and we.
#[derive(Clone, Debug, PartialEq)]
pub enum Layout {
    /// The same on both sides.
    Plain(Vec<usize>),
    /// `Linear.weight` (outputs, inputs); ours (inputs, outputs).
    Linear {
        /// Features that go in.
        inputs: usize,
        /// Features that come out.
        outputs: usize,
    },
    /// `Conv2d.weight` (outputs, inputs, 3, 3); ours (3, 3, inputs, outputs).
    Conv3x3 {
        /// Channels that go in.
        inputs: usize,
        /// Channels that come out.
        outputs: usize,
    },
    /// A spectral convolution: one array (inputs, outputs, modes, 2) on a line, two of (inputs, outputs, modes, modes, 2) on a square, four with three
    /// axes of modes on a cube; ours (modes, 2, inputs, outputs), the modes in the kernels' order.
    Spectral {
        /// Axes of the grid.
        axes: usize,
        /// Channels that go in.
        inputs: usize,
        /// Channels that come out.
        outputs: usize,
        /// Kept modes along an axis.
        modes: usize,
    },
    /// One (width) per head; ours side by side.
    Heads {
        /// Heads.
        heads: usize,
        /// Features of a head.
        width: usize,
    },
}

/// Layers that know their parameters' names in the reference.
pub trait ReferenceNames {
    /// All parameters, names starting with `prefix`, which is empty or ends with a dot.
    fn entries(&self, prefix: &str) -> Vec<Entry>;
}

/// The module with the weights of a reference state dict. Every name must be there, known and of the right shape.
pub fn import<M: Module + ReferenceNames>(
    module: M,
    arrays: &BTreeMap<String, Array>,
) -> Result<M, Mismatch> {
    let entries = module.entries("");
    check(&entries, arrays)?;
    let mut weights = BTreeMap::new();
    for Entry { id, names, layout } in entries {
        let parts: Vec<&[f32]> = names.iter().map(|name| arrays[name].values.as_slice()).collect();
        weights.insert(id, layout.import(&parts));
    }
    Ok(replace(module, weights))
}

/// The weights under the reference's names.
pub fn export<M: Module + ReferenceNames>(module: &M) -> BTreeMap<String, Array> {
    struct Weights(BTreeMap<ParamId, Vec<f32>>);
    impl ModuleVisitor for Weights {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.insert(param.id, to_vec(param.val()));
        }
    }
    let mut weights = Weights(BTreeMap::new());
    module.visit(&mut weights);
    under_reference_names(module, weights.0)
}

/// Gradients under the reference's names; parameters without one are left out.
pub fn export_gradients<M: Module + ReferenceNames>(
    module: &M,
    gradients: &Gradients,
) -> BTreeMap<String, Array> {
    struct Collect<'a>(&'a Gradients, BTreeMap<ParamId, Vec<f32>>);
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = param.val().grad(self.0) {
                self.1.insert(param.id, to_vec(gradient));
            }
        }
    }
    let mut collect = Collect(gradients, BTreeMap::new());
    module.visit(&mut collect);
    under_reference_names(module, collect.1)
}

/// The values of a tensor, row-major.
pub(crate) fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_into_vec().expect("converted to f32")
}

fn under_reference_names<M: ReferenceNames>(
    module: &M,
    values: BTreeMap<ParamId, Vec<f32>>,
) -> BTreeMap<String, Array> {
    let mut arrays = BTreeMap::new();
    for Entry { id, names, layout } in module.entries("") {
        let Some(values) = values.get(&id) else { continue };
        for ((name, shape), values) in names.into_iter().zip(layout.shapes()).zip(layout.export(values)) {
            arrays.insert(name, Array { shape, values });
        }
    }
    arrays
}

fn check(entries: &[Entry], arrays: &BTreeMap<String, Array>) -> Result<(), Mismatch> {
    let mut mismatch = Mismatch { missing: Vec::new(), extra: Vec::new(), misshapen: Vec::new() };
    let mut known = BTreeMap::new();
    for entry in entries {
        known.extend(entry.names.iter().zip(entry.layout.shapes()));
    }
    for (name, shape) in &known {
        match arrays.get(*name) {
            None => mismatch.missing.push(name.to_string()),
            Some(found) if found.shape != *shape || found.values.len() != shape.iter().product::<usize>() => {
                mismatch.misshapen.push((name.to_string(), shape.clone(), found.shape.clone()));
            }
            Some(_) => {}
        }
    }
    mismatch.extra.extend(arrays.keys().filter(|name| !known.contains_key(name)).cloned());
    let fits = mismatch.missing.is_empty() && mismatch.extra.is_empty() && mismatch.misshapen.is_empty();
    if fits { Ok(()) } else { Err(mismatch) }
}

/// Puts values into the parameters they belong to.
pub(crate) fn replace<M: Module>(module: M, values: BTreeMap<ParamId, Vec<f32>>) -> M {
    struct Replace(BTreeMap<ParamId, Vec<f32>>);
    impl ModuleMapper for Replace {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let Some(values) = self.0.remove(&param.id) else { return param };
            let (id, old, mapper) = param.consume();
            let new = Tensor::from_data(TensorData::new(values, old.dims()), &old.device());
            let new = if old.is_require_grad() { new.require_grad() } else { new };
            ops::reuse(old);
            Param::from_mapped_value(id, new, mapper)
        }
    }
    module.map(&mut Replace(values))
}

impl Entry {
    /// A parameter that is one array of the reference.
    pub(crate) fn one<const D: usize>(
        param: &Param<Tensor<D>>,
        name: impl Into<String>,
        layout: Layout,
    ) -> Self {
        Entry { id: param.id, names: vec![name.into()], layout }
    }

    /// A parameter of the same layout on both sides.
    pub(crate) fn plain<const D: usize>(param: &Param<Tensor<D>>, name: impl Into<String>) -> Self {
        Self::one(param, name, Layout::Plain(param.val().dims().to_vec()))
    }
}

impl Layout {
    /// The shapes of the reference's arrays.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        match *self {
            Layout::Plain(ref shape) => vec![shape.clone()],
            Layout::Linear { inputs, outputs } => vec![vec![outputs, inputs]],
            Layout::Conv3x3 { inputs, outputs } => vec![vec![outputs, inputs, 3, 3]],
            Layout::Spectral { axes, inputs, outputs, modes } => {
                let shape = [vec![inputs, outputs], vec![modes; axes], vec![2]].concat();
                vec![shape; 1 << (axes - 1)]
            }
            Layout::Heads { heads, width } => vec![vec![width]; heads],
        }
    }

    /// Our values from the reference's arrays.
    ///
    /// # Panics
    ///
    /// If the arrays do not have the [`shapes`](Self::shapes).
    pub fn import(&self, parts: &[&[f32]]) -> Vec<f32> {
        let mut ours = vec![0.0; parts.iter().map(|part| part.len()).sum()];
        match *self {
            Layout::Plain(_) | Layout::Heads { .. } => ours = parts.concat(),
            Layout::Linear { inputs, outputs } => ours = transposed(parts[0], outputs, inputs),
            Layout::Conv3x3 { inputs, outputs } => weights_from_torch(parts[0], inputs, outputs, &mut ours),
            Layout::Spectral { inputs, outputs, modes, .. } => match *parts {
                [one] => conv1d(inputs, outputs, modes).weights_from_reference(one, &mut ours),
                [low, high] => conv2d(inputs, outputs, modes).weights_from_reference([low, high], &mut ours),
                ref blocks => {
                    let blocks = [0, 1, 2, 3].map(|block| blocks[block]);
                    conv3d(inputs, outputs, modes).weights_from_reference(blocks, &mut ours);
                }
            },
        }
        ours
    }

    /// The reference's arrays from our values.
    pub fn export(&self, ours: &[f32]) -> Vec<Vec<f32>> {
        let mut theirs: Vec<Vec<f32>> =
            self.shapes().iter().map(|shape| vec![0.0; shape.iter().product()]).collect();
        match *self {
            Layout::Plain(_) => theirs[0].copy_from_slice(ours),
            Layout::Heads { width, .. } => theirs
                .iter_mut()
                .zip(ours.chunks_exact(width))
                .for_each(|(to, from)| to.copy_from_slice(from)),
            Layout::Linear { inputs, outputs } => theirs[0] = transposed(ours, inputs, outputs),
            Layout::Conv3x3 { inputs, outputs } => weights_to_torch(ours, inputs, outputs, &mut theirs[0]),
            Layout::Spectral { inputs, outputs, modes, .. } => match &mut theirs[..] {
                [one] => conv1d(inputs, outputs, modes).weights_to_reference(ours, one),
                [low, high] => conv2d(inputs, outputs, modes).weights_to_reference(ours, [low, high]),
                [a, b, c, d] => conv3d(inputs, outputs, modes).weights_to_reference(ours, [a, b, c, d]),
                _ => unreachable!("a grid has one to three axes"),
            },
        }
        theirs
    }
}

/// (rows, columns) to (columns, rows).
fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut turned = vec![0.0; rows * columns];
    if rows * columns > 0 {
        // Row after row of the result: what is written is whole lines of the cache.
        for (column, row) in turned.chunks_exact_mut(rows).enumerate() {
            row.iter_mut().zip(values[column..].iter().step_by(columns)).for_each(|(to, from)| *to = *from);
        }
    }
    turned
}

/// The kernel whose weights have these sizes; the grid does not matter to them.
fn conv1d(inputs: usize, outputs: usize, modes: usize) -> SpectralConv1d {
    let (activation, key) = (Activation::None, Key::default());
    SpectralConv1d { batch: 0, n: 0, inputs, outputs, modes, pointwise: true, activation, dropout: 0.0, key }
}

fn conv2d(inputs: usize, outputs: usize, modes: usize) -> SpectralConv2d {
    let (activation, key) = (Activation::None, Key::default());
    let (batch, n1, n2) = (0, 0, 0);
    SpectralConv2d { batch, n1, n2, inputs, outputs, modes, pointwise: true, activation, dropout: 0.0, key }
}

fn conv3d(inputs: usize, outputs: usize, modes: usize) -> SpectralConv3d {
    let (activation, key) = (Activation::None, Key::default());
    let (batch, n1, n2, n3, pointwise, dropout) = (0, 0, 0, 0, true, 0.0);
    SpectralConv3d { batch, n1, n2, n3, inputs, outputs, modes, pointwise, activation, dropout, key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;
    use burn::tensor::Device;

    #[test]
    fn every_layout_goes_there_and_back() {
        let layouts = [
            Layout::Plain(vec![2, 3]),
            Layout::Linear { inputs: 3, outputs: 5 },
            Layout::Conv3x3 { inputs: 2, outputs: 3 },
            Layout::Spectral { axes: 1, inputs: 2, outputs: 3, modes: 4 },
            Layout::Spectral { axes: 2, inputs: 2, outputs: 3, modes: 4 },
            Layout::Spectral { axes: 3, inputs: 2, outputs: 3, modes: 2 },
            Layout::Heads { heads: 3, width: 4 },
        ];
        for layout in layouts {
            let count = |shape: Vec<usize>| shape.iter().product::<usize>();
            let total: usize = layout.shapes().into_iter().map(count).sum();
            let ours: Vec<f32> = (0..total).map(|i| i as f32).collect();
            let theirs = layout.export(&ours);
            let parts: Vec<&[f32]> = theirs.iter().map(Vec::as_slice).collect();
            assert_eq!(layout.import(&parts), ours, "{layout:?}");
        }
        let linear = Layout::Linear { inputs: 3, outputs: 2 };
        assert_eq!(linear.import(&[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }

    #[test]
    fn weights_go_out_and_in_and_misfits_are_listed() {
        let device = Device::flex();
        let config = presets::get("burgers").unwrap().network;
        let model = |seed| config.init(seed, &device).unwrap();
        let weights = export(&model(1));
        assert_ne!(export(&model(2)), weights);
        assert_eq!(export(&import(model(2), &weights).unwrap()), weights);

        let mut wrong = weights.clone();
        wrong.remove("feat_extract.id.bias");
        wrong.insert("feat_extract.id.bia".into(), Array { shape: vec![96], values: vec![0.0; 96] });
        let fc = wrong.get_mut("encoder_layers.3.attn.fc.weight").unwrap();
        fc.shape.reverse();
        assert_eq!(
            import(model(2), &wrong).unwrap_err(),
            Mismatch {
                missing: vec!["feat_extract.id.bias".into()],
                extra: vec!["feat_extract.id.bia".into()],
                misshapen: vec![("encoder_layers.3.attn.fc.weight".into(), vec![96, 97], vec![97, 96])],
            }
        );
        assert_eq!(
            import(model(2), &wrong).unwrap_err().to_string(),
            "weights do not fit the model; missing: feat_extract.id.bias; not known: feat_extract.id.bia; \
             misshapen: encoder_layers.3.attn.fc.weight: expected [96, 97], found [97, 96]"
        );
        let nothing = import(model(2), &BTreeMap::new()).unwrap_err().to_string();
        assert!(
            nothing.contains("encoder_layers.0.attn.fc.bias, encoder_layers.0.attn.fc.weight, "),
            "{nothing}"
        );
        assert!(nothing.ends_with(&format!(" and {} more", weights.len() - 4)), "{nothing}");
    }
}
