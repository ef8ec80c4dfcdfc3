//! Golden cases: what the paper's PyTorch code computes, against the f64 reference and against the kernels.
//!
//! A case is a pair `name.safetensors` + `name.json` in one of four folders. The cases of the repository lie in
//! `tests/golden`; `GALERKIN_GOLDEN=DIR` runs every case of another directory of the same layout. Nothing is skipped: an
//! unknown kind, hyper-parameter or value panics with the file's name.

mod layers;
mod scaler;
mod spectral;

use galerkin_kernels::activation::Activation;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
fn attention() {
    walk(
        "attention",
        &[("simple_attention", layers::attention), ("causal_linear_attn_function", layers::causal)],
    );
}

#[test]
fn encoder_layer() {
    walk("encoder_layer", &[("encoder_layer", layers::encoder)]);
}

#[test]
fn spectral() {
    walk("spectral", &[("spectral_conv1d", spectral::conv1d), ("spectral_conv2d", spectral::conv2d)]);
}

#[test]
fn scaler() {
    walk(
        "scaler",
        &[
            ("down_scaler", scaler::down),
            ("up_scaler", scaler::up),
            ("interp2d_encoder", scaler::interp_encoder),
            ("interp2d_upsample", scaler::interp_upsample),
            ("scaler_sizes", scaler::sizes),
        ],
    );
}

type Check = fn(&Case);

/// Runs every case of a folder through the check of its kind, and wants each kind at least once.
#[allow(clippy::print_stdout)]
fn walk(folder: &str, kinds: &[(&str, Check)]) {
    let (root, chosen) = match std::env::var_os("GALERKIN_GOLDEN") {
        Some(root) => (PathBuf::from(root), true),
        None => (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), false),
    };
    let folder = root.join(folder);
    if chosen && !folder.is_dir() {
        assert!(root.is_dir(), "GALERKIN_GOLDEN: {} is no directory", root.display());
        println!("{}: not there", folder.display());
        return;
    }
    let mut counts: BTreeMap<&str, usize> = kinds.iter().map(|(kind, _)| (*kind, 0)).collect();
    for sidecar in sidecars(&folder) {
        let case = Case::read(&sidecar);
        let kind = case.json["kind"].as_str().unwrap_or_else(|| panic!("{}: no kind", case.file));
        let Some((kind, check)) = kinds.iter().find(|(known, _)| *known == kind) else {
            panic!("{}: unknown kind {kind:?}", case.file)
        };
        check(&case);
        *counts.get_mut(kind).unwrap() += 1;
    }
    for (kind, count) in counts {
        println!("{}: {count} cases of {kind}", folder.display());
        assert!(count > 0, "{}: no case of {kind}", folder.display());
    }
}

/// The JSON files of a folder, by name; a tensor file without one would go unseen, so it is an error.
fn sidecars(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        match path.extension().and_then(|e| e.to_str()) {
            Some("json") => found.push(path),
            Some("safetensors") => {
                assert!(path.with_extension("json").is_file(), "{}: no sidecar", path.display())
            }
            _ => panic!("{}: neither a sidecar nor tensors", path.display()),
        }
    }
    found.sort();
    found
}

/// Who computed a value that is compared with a golden one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Reference,
    Kernel,
}

struct Tensor {
    shape: Vec<usize>,
    values: Vec<f32>,
}

struct Case {
    file: String,
    json: Value,
    tensors: BTreeMap<String, Tensor>,
}

impl Case {
    fn read(sidecar: &Path) -> Self {
        let file = sidecar.display().to_string();
        let text = std::fs::read_to_string(sidecar).unwrap_or_else(|e| panic!("{file}: {e}"));
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let mut tensors = BTreeMap::new();
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
                tensors.insert(name, Tensor { shape: view.shape().to_vec(), values });
            }
        }
        Case { file, json, tensors }
    }

    fn tensor(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("{}: no tensor {name}", self.file))
    }

    fn values(&self, name: &str) -> &[f32] {
        &self.tensor(name).values
    }

    fn shape<const N: usize>(&self, name: &str) -> [usize; N] {
        let shape = &self.tensor(name).shape;
        shape.as_slice().try_into().unwrap_or_else(|_| panic!("{}: {name} has shape {shape:?}", self.file))
    }

    /// The names of the stored tensors that start with `prefix`.
    fn names(&self, prefix: &str) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str).filter(move |name| name.starts_with(prefix))
    }

    /// The hyper-parameters; any that is not among `known` panics.
    fn hyper(&self, known: &[&str]) -> Hyper<'_> {
        let map = self.json["hyper_parameters"]
            .as_object()
            .unwrap_or_else(|| panic!("{}: no hyper_parameters", self.file));
        for (key, value) in map {
            assert!(known.contains(&key.as_str()), "{}: unknown hyper-parameter {key} = {value}", self.file);
        }
        Hyper { file: &self.file, map }
    }

    /// Compares one tensor entry by entry.
    ///
    /// The rule. A sidecar records [M, δ] for every tensor: the largest value, and the largest difference between the
    /// stored f32 result and a f64 run of the same case, so δ is how far the golden values are from the truth.
    ///
    /// The f64 reference sits at the truth, so it may be off by δ and no more: 1.01 δ + 1e-10 M. (The 1e-10 is for ε of
    /// the norms, which we keep in f32, and for truth being f64 itself.)
    ///
    /// A kernel adds roundings of its own: as many as PyTorch's, of the same values, in another order. Twice δ would
    /// be typical; δ is the maximum of one draw of them, and short tensors draw few, hence 4 δ; and 16 ε_f32 M where
    /// PyTorch was lucky or its sums were shorter than ours. (Measured: at most half of it.)
    ///
    /// A gradient listed as zero up to rounding is what remains of a sum that cancels. Its M is zero and says nothing
    /// about the summands. They are of the size of those in the gradient of the weight beside it (bias of linears.1:
    /// weight of linears.1), so that one's M is taken; the golden value is noise, and ours is compared with zero.
    ///
    /// A tensor without a record (the causal case has one for y only) gets M from its values and δ = 8 ε_f32 M.
    #[track_caller]
    fn check<T: Copy + Into<f64>>(&self, who: Who, name: &str, got: impl IntoIterator<Item = T>) {
        const ROUNDING: f64 = f32::EPSILON as f64;
        let golden = self.values(name);
        let (mut largest, delta) = self.rounding(name).unwrap_or_else(|| {
            let largest = golden.iter().fold(0.0f64, |m, v| m.max(v.abs() as f64));
            (largest, 8.0 * ROUNDING * largest)
        });
        let zero = self.zero_up_to_rounding(name);
        if zero {
            let weight = name.strip_suffix(".bias").map(|stem| format!("{stem}.weight"));
            let beside = weight.and_then(|weight| self.rounding(&weight));
            largest = beside.unwrap_or_else(|| panic!("{}: {name} has no weight beside it", self.file)).0;
        }
        let allowed = match who {
            Who::Reference => 1.01 * delta + 1e-10 * largest,
            Who::Kernel => 4.0 * delta + 16.0 * ROUNDING * largest,
        };
        let got: Vec<f64> = got.into_iter().map(Into::into).collect();
        assert_eq!(got.len(), golden.len(), "{}: {name}: number of values", self.file);
        for (i, (got, golden)) in got.iter().zip(golden).enumerate() {
            let want = if zero { 0.0 } else { *golden as f64 };
            let error = (got - want).abs();
            assert!(
                error <= allowed,
                "{}: {name}[{i}]: {who:?} found {got}, golden {golden}; off by {error:.2e}, allowed {allowed:.2e}",
                self.file
            );
        }
    }

    /// The loss Σ y·c of a f64 run was recorded in full precision; ours agrees but for ε of the norms, kept in f32.
    #[track_caller]
    fn check_loss(&self, y: &[f64]) {
        let cotangent = self.values("in.cotangent");
        let terms = || y.iter().zip(cotangent).map(|(y, c)| y * *c as f64);
        let (loss, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        let want = self.json["loss_value_f64"].as_f64().unwrap_or_else(|| panic!("{}: no loss", self.file));
        assert!((loss - want).abs() <= 1e-10 * size, "{}: loss {loss}, recorded {want}", self.file);
    }

    /// Checks what was computed and that nothing stored under `prefix` was left out.
    #[track_caller]
    fn check_all<T: Copy + Into<f64>>(&self, who: Who, prefix: &str, got: BTreeMap<String, Vec<T>>) {
        for name in self.names(prefix) {
            assert!(got.contains_key(name), "{}: {name} was not computed", self.file);
        }
        for (name, values) in got {
            self.check(who, &name, values);
        }
    }

    fn rounding(&self, name: &str) -> Option<(f64, f64)> {
        let record = self.json["rounding"]["values"].get(name)?;
        Some((record[0].as_f64().unwrap(), record[1].as_f64().unwrap()))
    }

    fn zero_up_to_rounding(&self, name: &str) -> bool {
        let listed = self.json.get("gradients_zero_up_to_rounding").and_then(Value::as_array);
        listed.is_some_and(|listed| listed.iter().any(|entry| entry == name))
    }
}

/// Hyper-parameters under their reference names; what is there with the wrong type panics.
struct Hyper<'a> {
    file: &'a str,
    map: &'a Map<String, Value>,
}

impl Hyper<'_> {
    /// `None` if absent or null: the default of the reference applies.
    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn need(&self, key: &str) -> &Value {
        self.get(key).unwrap_or_else(|| panic!("{}: no hyper-parameter {key}", self.file))
    }

    fn size(&self, key: &str) -> usize {
        self.need(key).as_u64().unwrap_or_else(|| self.unknown(key)) as usize
    }

    fn number(&self, key: &str) -> f64 {
        self.need(key).as_f64().unwrap_or_else(|| self.unknown(key))
    }

    fn text(&self, key: &str) -> &str {
        self.need(key).as_str().unwrap_or_else(|| self.unknown(key))
    }

    fn flag(&self, key: &str, default: bool) -> bool {
        self.get(key).map_or(default, |value| value.as_bool().unwrap_or_else(|| self.unknown(key)))
    }

    fn activation(&self, key: &str, default: Activation) -> Activation {
        match self.get(key).map(|_| self.text(key)) {
            None => default,
            Some("relu") => Activation::Relu,
            Some("silu") => Activation::Silu,
            Some("gelu") => Activation::Gelu,
            Some(_) => self.unknown(key),
        }
    }

    /// Panics over a value that is not understood.
    fn unknown(&self, key: &str) -> ! {
        panic!("{}: cannot read {key} = {}", self.file, self.map[key])
    }
}

/// Where our list of parameters keeps the golden tensors: for each of ours, the golden names (without `p.` or `g.`) that
/// make it up, and for each golden entry its place in ours.
type Layout = Vec<Vec<(String, Vec<usize>)>>;

/// Golden (outputs, inputs), ours (inputs, outputs).
fn transposed(name: impl Into<String>, inputs: usize, outputs: usize) -> Vec<(String, Vec<usize>)> {
    let places = (0..outputs).flat_map(|o| (0..inputs).map(move |i| i * outputs + o)).collect();
    vec![(name.into(), places)]
}

/// The same order on both sides.
fn plain(name: impl Into<String>, len: usize) -> Vec<(String, Vec<usize>)> {
    vec![(name.into(), (0..len).collect())]
}

/// Our parameters, gathered from the golden ones. Every golden parameter has to be used, and has to have a gradient.
fn load(case: &Case, layout: &Layout) -> Vec<Vec<f32>> {
    let used: Vec<String> = layout.iter().flatten().map(|(name, _)| format!("p.{name}")).collect();
    let without = case.json.get("parameters_without_gradient").and_then(Value::as_array);
    assert!(without.is_none_or(Vec::is_empty), "{}: parameters without gradient {without:?}", case.file);
    for name in case.names("p.") {
        assert!(used.iter().any(|used| used == name), "{}: parameter {name} is not used", case.file);
        case.tensor(&name.replacen("p.", "g.", 1));
    }
    let gather = |parts: &Vec<(String, Vec<usize>)>| {
        let mut ours = vec![f32::NAN; parts.iter().map(|(_, places)| places.len()).sum()];
        for (name, places) in parts {
            let values = case.values(&format!("p.{name}"));
            assert_eq!(values.len(), places.len(), "{}: values of p.{name}", case.file);
            for (value, place) in values.iter().zip(places) {
                ours[*place] = *value;
            }
        }
        ours
    };
    layout.iter().map(gather).collect()
}

/// The way back: our gradients under the golden names, with that of x.
fn gradients(layout: &Layout, grads: &[Vec<f32>], dx: Vec<f32>) -> BTreeMap<String, Vec<f32>> {
    let mut named = BTreeMap::from([("g.in.x".to_string(), dx)]);
    for (parts, ours) in layout.iter().zip(grads) {
        for (name, places) in parts {
            named.insert(format!("g.{name}"), places.iter().map(|place| ours[*place]).collect());
        }
    }
    named
}
