//! Golden cases: reading them, and the rule of what counts as equal.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use galerkin::layers::Activation;
use galerkin::ops;
use galerkin::reference::{Array, ReferenceNames, export_gradients, import};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub struct Case {
    pub file: String,
    pub json: Value,
    arrays: BTreeMap<String, Array>,
}

/// What a forward pass gave: y, and other outputs under the golden names.
pub struct Outputs<const E: usize> {
    pub y: Tensor<E>,
    pub others: BTreeMap<String, Vec<f32>>,
}

impl<const E: usize> From<Tensor<E>> for Outputs<E> {
    fn from(y: Tensor<E>) -> Self {
        Outputs { y, others: BTreeMap::new() }
    }
}

impl Case {
    pub fn read(sidecar: &Path) -> Self {
        let file = sidecar.display().to_string();
        let text = std::fs::read_to_string(sidecar).unwrap_or_else(|e| panic!("{file}: {e}"));
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let mut arrays = BTreeMap::new();
        // The table of scaler sizes is JSON alone.
        if json.get("tensors").is_some() {
            let path = sidecar.with_extension("safetensors");
            let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let stored =
                safetensors::SafeTensors::deserialize(&bytes).unwrap_or_else(|e| panic!("{file}: {e}"));
            for (name, view) in stored.tensors() {
                assert_eq!(view.dtype(), safetensors::Dtype::F32, "{file}: {name}");
                let values =
                    view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                arrays.insert(name, Array { shape: view.shape().to_vec(), values });
            }
        }
        // Around a checkpoint, inputs and prediction are files of their own.
        if json.get("checkpoint").is_some() {
            let inputs = json["inputs"].as_object().unwrap_or_else(|| panic!("{file}: no inputs"));
            let inputs = inputs.iter().map(|(name, path)| (format!("in.{name}"), path));
            for (name, path) in inputs.chain([("out.y".to_string(), &json["prediction"])]) {
                let path = path.as_str().unwrap_or_else(|| panic!("{file}: {name} is no file"));
                arrays.insert(name, npy(&sidecar.with_file_name(path)));
            }
        }
        Case { file, json, arrays }
    }

    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    pub fn text(&self, key: &str) -> &str {
        self.json[key].as_str().unwrap_or_else(|| panic!("{}: no {key}", self.file))
    }

    /// A file in the case's folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        Path::new(&self.file).with_file_name(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.arrays.contains_key(name)
    }

    pub fn array(&self, name: &str) -> &Array {
        self.arrays.get(name).unwrap_or_else(|| panic!("{}: no tensor {name}", self.file))
    }

    /// Names of the outputs and gradients.
    pub fn results(&self) -> impl Iterator<Item = &str> {
        self.arrays
            .keys()
            .map(String::as_str)
            .filter(|name| name.starts_with("out.") || name.starts_with("g."))
    }

    pub fn shape<const N: usize>(&self, name: &str) -> [usize; N] {
        let shape = &self.array(name).shape;
        shape.as_slice().try_into().unwrap_or_else(|_| panic!("{}: {name} has shape {shape:?}", self.file))
    }

    /// A constant.
    pub fn tensor<const D: usize>(&self, name: &str, device: &Device) -> Tensor<D> {
        let values = self.array(name).values.clone();
        Tensor::from_data(TensorData::new(values, self.shape::<D>(name)), device)
    }

    /// All hyper-parameters.
    pub fn all_hyper(&self) -> &Map<String, Value> {
        let all = self.json["hyper_parameters"].as_object();
        all.unwrap_or_else(|| panic!("{}: no hyper_parameters", self.file))
    }

    /// The hyper-parameters; any that is not among `known` panics.
    pub fn hyper(&self, known: &[&str]) -> Hyper<'_> {
        self.hyper_of(self.all_hyper(), known)
    }

    /// Some of the hyper-parameters; any that is not among `known` panics.
    pub fn hyper_of<'a>(&'a self, map: &'a Map<String, Value>, known: &[&str]) -> Hyper<'a> {
        for (key, value) in map {
            assert!(known.contains(&key.as_str()), "{}: unknown hyper-parameter {key} = {value}", self.file);
        }
        Hyper { file: &self.file, map }
    }

    /// The module with the case's parameters.
    pub fn load<M: Module + ReferenceNames>(&self, module: M) -> M {
        let parameters = self.arrays.iter().filter_map(|(name, array)| {
            name.strip_prefix("p.").map(|name| (name.to_string(), array.clone()))
        });
        import(module, &parameters.collect()).unwrap_or_else(|e| panic!("{}: {e}", self.file))
    }

    /// Loads the case's parameters into the module, runs it forward and backward, fused and composed, and compares all that
    /// is stored. `elsewhere` are outputs that the layer does not show and the kernels' tests compare.
    pub fn run<M, const D: usize, const E: usize>(
        &self,
        module: M,
        elsewhere: &[&str],
        forward: impl Fn(&M, Tensor<D>) -> Outputs<E>,
    ) where
        M: Module + ReferenceNames,
    {
        let without = self.json.get("parameters_without_gradient").and_then(Value::as_array);
        assert!(without.is_none_or(Vec::is_empty), "{}: parameters without gradient {without:?}", self.file);
        let module = self.load(module);
        let device = device();
        for route in ["fused", "composed"] {
            let run = || {
                let x = self.tensor::<D>("in.x", &device).require_grad();
                let Outputs { y, others } = forward(&module, x.clone());
                let gradients = (y.clone() * self.tensor("in.cotangent", &device)).sum().backward();
                let mut found = others;
                found.insert("out.y".to_string(), to_vec(y));
                found.insert("g.in.x".to_string(), to_vec(x.grad(&gradients).expect("x is tracked")));
                for (name, array) in export_gradients(&module, &gradients) {
                    found.insert(format!("g.{name}"), array.values);
                }
                found
            };
            let found = if route == "fused" { run() } else { ops::composed_only(run) };
            for name in self.results() {
                let known = found.contains_key(name) || elsewhere.contains(&name);
                assert!(known, "{}: {name} was not computed ({route})", self.file);
            }
            for (name, values) in found {
                self.check(route, &name, &values);
            }
        }
    }

    /// Compares one tensor entry by entry.
    ///
    /// The rule is that of the kernels' golden tests. A sidecar records [M, δ] for every tensor: its largest value, and the largest
    /// difference between the stored f32 values and a f64 run, which is how far PyTorch's roundings took it. Ours are as many, of the
    /// same values, in another order: 4 δ, because δ is the maximum of one draw of them, and 16 ε_f32 M where PyTorch was
    /// lucky or its sums were shorter. In whole models 8 δ: what many layers piled up shows in the six values of a head's norm, and
    /// δ is the maximum of no more than these. (Measured over all cases of the set: at most 0.73 of the allowance in layers,
    /// 0.78 in models.)
    ///
    /// A gradient listed as zero up to rounding is what remains of a sum that cancels; its summands are of the size of those
    /// in the gradient of the weight beside it, so that one's M is taken, and ours is compared with zero.
    ///
    /// Without a record, M is taken from the values, for a bias from those of the weight beside it too because its gradient may
    /// cancel in part, and δ = 8 ε_f32 M. (Measured for checkpoints, which are whole models without a record: at most 0.57 of the
    /// allowance.)
    #[track_caller]
    pub fn check(&self, route: &str, name: &str, found: &[f32]) {
        const ROUNDING: f64 = f32::EPSILON as f64;
        let golden = &self.array(name).values;
        let (mut largest, delta) = self.rounding(name).unwrap_or_else(|| {
            let beside = beside(name).filter(|weight| self.has(weight));
            let largest = beside.map_or(0.0, |weight| self.largest(&weight)).max(self.largest(name));
            (largest, 8.0 * ROUNDING * largest)
        });
        let listed = self.json.get("gradients_zero_up_to_rounding").and_then(Value::as_array);
        let zero = listed.is_some_and(|listed| listed.iter().any(|entry| entry == name));
        if zero {
            let beside = beside(name).and_then(|weight| self.rounding(&weight));
            largest = beside.unwrap_or_else(|| panic!("{}: {name} has no weight beside it", self.file)).0;
        }
        let stages = self.arrays.keys().any(|name| name.starts_with("out.stage."));
        let whole_model = stages || self.kind() == "checkpoint";
        let allowed = if whole_model { 8.0 } else { 4.0 } * delta + 16.0 * ROUNDING * largest;
        assert_eq!(found.len(), golden.len(), "{}: {name}: number of values", self.file);
        for (i, (found, golden)) in found.iter().zip(golden).enumerate() {
            let want = if zero { 0.0 } else { *golden as f64 };
            let error = (*found as f64 - want).abs();
            assert!(
                error <= allowed,
                "{}: {name}[{i}]: {route} found {found}, golden {golden}; off by {error:.2e}, allowed {allowed:.2e}",
                self.file
            );
        }
    }

    /// M and δ. A training run records δ alone, of the weights at its end, under their own names. The norms of its gradients
    /// follow the weights: of what the steps change in them, roundings decide the same share.
    fn rounding(&self, name: &str) -> Option<(f64, f64)> {
        let rounding = self.json.get("rounding")?;
        let records = &rounding["values"];
        if name == "out.grad_norms" {
            let share = rounding["worst"].as_f64().unwrap() / rounding["max_abs_change"].as_f64().unwrap();
            return Some((self.largest(name), share * self.largest(name)));
        }
        if let Some(delta) = name.strip_prefix("out.final.").and_then(|weight| records.get(weight)) {
            return Some((self.largest(name), delta.as_f64().unwrap()));
        }
        let record = records.get(name)?;
        Some((record[0].as_f64().unwrap(), record[1].as_f64().unwrap()))
    }

    fn largest(&self, name: &str) -> f64 {
        self.array(name).values.iter().fold(0.0, |m, v| m.max(v.abs() as f64))
    }
}

/// The weight that belongs to a bias.
fn beside(bias: &str) -> Option<String> {
    bias.strip_suffix(".bias").map(|stem| format!("{stem}.weight"))
}

/// A file of numpy that holds f32 row by row, as the golden ones do.
fn npy(path: &Path) -> Array {
    let file = path.display();
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{file}: {e}"));
    assert_eq!(bytes[..8], *b"\x93NUMPY\x01\x00", "{file}: begin");
    let (header, values) = bytes[10..].split_at(u16::from_le_bytes([bytes[8], bytes[9]]) as usize);
    let header = std::str::from_utf8(header).unwrap_or_else(|e| panic!("{file}: {e}"));
    let shape = header.trim().strip_prefix("{'descr': '<f4', 'fortran_order': False, 'shape': (");
    let shape = shape.and_then(|shape| shape.strip_suffix("), }"));
    let shape = shape.unwrap_or_else(|| panic!("{file}: cannot read {header}"));
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let values = values.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let array = Array { shape: sizes.map(|size| size.parse().unwrap()).collect(), values };
    assert_eq!(array.values.len(), array.shape.iter().product::<usize>(), "{file}: values");
    array
}

pub fn device() -> Device {
    Device::flex().autodiff()
}

pub fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

/// Where the cases of a folder are: the directory asked for, or this crate's own, or the kernels'.
pub fn folder(name: &str) -> Option<PathBuf> {
    if let Some(root) = std::env::var_os("GALERKIN_GOLDEN").map(PathBuf::from) {
        assert!(root.is_dir(), "GALERKIN_GOLDEN: {} is no directory", root.display());
        return Some(root.join(name)).filter(|folder| folder.is_dir());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [here.join("tests/golden"), here.join("../kernels/tests/golden")];
    let found = places.iter().map(|root| root.join(name)).find(|folder| folder.is_dir());
    Some(found.unwrap_or_else(|| panic!("no golden cases of {name}")))
}

/// The JSON files of a folder, by name; a tensor file without one would go unseen, so it is an error.
pub fn sidecars(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        match path.extension().and_then(|e| e.to_str()) {
            Some("json") => found.push(path),
            Some("safetensors" | "pt") => {
                assert!(path.with_extension("json").is_file(), "{}: no sidecar", path.display())
            }
            // Inputs and prediction around a checkpoint, which its sidecar names.
            Some("npy") => {}
            _ => panic!("{}: neither a sidecar nor tensors", path.display()),
        }
    }
    found.sort();
    found
}

/// Hyper-parameters under their reference names; what is there with the wrong type panics.
pub struct Hyper<'a> {
    file: &'a str,
    map: &'a Map<String, Value>,
}

impl Hyper<'_> {
    /// `None` if absent or null: the default of the reference applies.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub fn need(&self, key: &str) -> &Value {
        self.get(key).unwrap_or_else(|| panic!("{}: no hyper-parameter {key}", self.file))
    }

    pub fn size(&self, key: &str) -> usize {
        self.need(key).as_u64().unwrap_or_else(|| self.unknown(key)) as usize
    }

    pub fn number(&self, key: &str) -> f64 {
        self.need(key).as_f64().unwrap_or_else(|| self.unknown(key))
    }

    pub fn text(&self, key: &str) -> &str {
        self.need(key).as_str().unwrap_or_else(|| self.unknown(key))
    }

    pub fn map(&self, key: &str) -> &Map<String, Value> {
        self.need(key).as_object().unwrap_or_else(|| self.unknown(key))
    }

    pub fn flag(&self, key: &str, default: bool) -> bool {
        self.get(key).map_or(default, |value| value.as_bool().unwrap_or_else(|| self.unknown(key)))
    }

    pub fn activation(&self, key: &str, default: Activation) -> Activation {
        match self.get(key).map(|_| self.text(key)) {
            None => default,
            Some("relu") => Activation::Relu,
            Some("silu") => Activation::Silu,
            Some("gelu") => Activation::Gelu,
            Some(_) => self.unknown(key),
        }
    }

    /// Panics unless the value is what our layers have built in: null, absent, or one of these.
    pub fn only(&self, key: &str, values: &[Value]) {
        if self.get(key).is_some_and(|found| !values.contains(found)) {
            self.unknown(key);
        }
    }

    /// Panics over a value that is not understood.
    pub fn unknown(&self, key: &str) -> ! {
        panic!("{}: cannot read {key} = {}", self.file, self.map[key])
    }
}
