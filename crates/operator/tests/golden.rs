//! Golden cases: layers and models compute what the paper's PyTorch code computes, values and gradients, fused and composed.
//!
//! A case is a pair `name.safetensors` + `name.json`, or a checkpoint `name.pt` with `.npy` files beside. Attention, encoder layers,
//! spectral convolutions and scalers are the kernels' own cases; the others lie in `tests/golden`. `GALERKIN_GOLDEN=DIR` runs every
//! case of another directory of the same layout, `GALERKIN_DEVICE=NAME` runs them on another device (`galerkin::device`), where
//! operations are composed only. An unknown kind, hyper-parameter or value panics with the file's name.

mod case;

use burn::tensor::Tensor;
use case::{Case, Hyper, Outputs, device, folder, routes, sidecars, to_vec};
use galerkin::init::Builder;
use galerkin::layers::*;
use galerkin::loss::{GridLoss, Loss, LossTarget};
use galerkin::metrics::{Summary, relative_l2};
use galerkin::networks::{
    Boundary, Coordinates, InterpolationConfig, LiftConfig, Network, NetworkConfig, ResampledSizes,
};
use galerkin::ops::AttentionInput;
use galerkin::optimizer::{AdamConfig, Optimizer, OptimizerConfig};
use galerkin::reference::{export, export_gradients};
use galerkin::schedule::{Rates, Schedule};
use galerkin::weights::import_torch;
use galerkin_data::Array;
use galerkin_data::normalize::{Fit, Normalizer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[test]
fn attention() {
    let kinds: &[(&str, Check)] =
        &[("simple_attention", simple_attention), ("causal_linear_attn_function", left_to_kernels)];
    walk("attention", kinds);
}

#[test]
fn encoder_layer() {
    walk("encoder_layer", &[("encoder_layer", encoder)]);
}

#[test]
fn spectral() {
    walk("spectral", &[("spectral_conv1d", spectral_1d), ("spectral_conv2d", spectral_2d)]);
}

#[test]
fn scaler() {
    let kinds: &[(&str, Check)] = &[
        ("down_scaler", down_scaler),
        ("up_scaler", up_scaler),
        ("scaler_sizes", scaler_sizes),
        // The scalers' inner modules with their axes the other way round and with options that no model uses.
        ("interp2d_encoder", left_to_kernels),
        ("interp2d_upsample", left_to_kernels),
    ];
    walk("scaler", kinds);
}

#[test]
fn regressor() {
    walk(
        "regressor",
        &[("spectral_regressor", spectral_decoder), ("pointwise_regressor", pointwise_decoder)],
    );
}

#[test]
fn normalizer() {
    walk("normalizer", &[("normalizer", unit_gaussian)]);
}

#[test]
fn loss() {
    walk("loss", &[("loss", relative_loss)]);
}

#[test]
fn model() {
    walk("model", &[("simple_transformer", transformer_1d), ("transformer_2d", transformer_2d)]);
}

#[test]
fn optim() {
    walk("optim", &[("onecycle_lr", one_cycle), ("training_trajectory", training)]);
}

#[test]
fn checkpoint() {
    walk("checkpoint", &[("checkpoint", torch_checkpoint)]);
}

/// Whether the case was run here.
type Check = fn(&Case) -> bool;

/// Runs every case of a folder through the check of its kind, and wants each kind at least once.
#[allow(clippy::print_stdout)]
fn walk(name: &str, kinds: &[(&str, Check)]) {
    let Some(folder) = folder(name) else {
        println!("{name}: no such folder");
        return;
    };
    let mut counts: BTreeMap<&str, [usize; 2]> = kinds.iter().map(|(kind, _)| (*kind, [0; 2])).collect();
    for sidecar in sidecars(&folder) {
        let case = Case::read(&sidecar);
        let Some((kind, check)) = kinds.iter().find(|(known, _)| *known == case.kind()) else {
            panic!("{}: unknown kind {:?}", case.file, case.kind())
        };
        let ran = check(&case);
        counts.get_mut(kind).unwrap()[ran as usize] += 1;
    }
    for (kind, [left, ran]) in counts {
        let routes = routes().join(" and ");
        println!("{name}: {ran} cases of {kind}, {routes}; {left} left to the kernels' tests");
        assert!(ran + left > 0, "{}: no case of {kind}", folder.display());
    }
}

/// No layer of this crate computes it; the kernels' golden tests do.
fn left_to_kernels(_: &Case) -> bool {
    false
}

fn simple_attention(case: &Case) -> bool {
    let hyper = case.hyper(&["n_head", "d_model", "pos_dim", "attention_type", "norm", "norm_type", "eps"]);
    let norm = if hyper.flag("norm", false) { head_norm(&hyper) } else { HeadNorm::None };
    let config = attention_config(&hyper, norm, hyper.number("eps"));
    let module = config.init(&mut builder()).unwrap();
    case.run(module, &[], |module, x| {
        let input = attention_input(case, x, config.coordinates);
        let weights = module.weights(input.clone(), Mode::Evaluate).unwrap();
        Outputs {
            y: module.forward(input, Mode::Evaluate).unwrap(),
            others: BTreeMap::from([("out.attn_weight".to_string(), to_vec(weights))]),
        }
    });
    true
}

fn encoder(case: &Case) -> bool {
    let hyper = case.hyper(&[
        "d_model",
        "n_head",
        "pos_dim",
        "dim_feedforward",
        "attention_type",
        "layer_norm",
        "attn_norm",
        "norm_type",
        "norm_eps",
        "residual_type",
        "activation_type",
    ]);
    let norm_after = hyper.flag("layer_norm", true);
    // A layer without any norm gets the one inside the heads.
    let inside = hyper.flag("attn_norm", !norm_after) || !norm_after;
    let norm = if inside { head_norm(&hyper) } else { HeadNorm::None };
    let eps = hyper.number("norm_eps");
    let config = EncoderLayerConfig {
        attention: attention_config(&hyper, norm, eps),
        hidden: hyper.size("dim_feedforward"),
        activation: hyper.activation("activation_type", Activation::Relu),
        norm_after,
        eps,
        minus: minus(&hyper),
        residual_dropout: 0.0,
        hidden_dropout: 0.0,
    };
    let module = config.init(&mut builder()).unwrap();
    case.run(module, &[], |module, x| {
        let input = attention_input(case, x, config.attention.coordinates);
        let weights = module.attention.weights(input.clone(), Mode::Evaluate).unwrap();
        Outputs {
            y: module.forward(input, Mode::Evaluate).unwrap(),
            others: BTreeMap::from([("out.attn_weight".to_string(), to_vec(weights))]),
        }
    });
    true
}

fn spectral_1d(case: &Case) -> bool {
    let module = spectral_config(case, 1).init(&mut builder()).unwrap();
    case.run(module, &["out.freq"], |module, x: Tensor<3>| {
        let n = x.dims()[1];
        module.forward(x, &[n], Mode::Evaluate).unwrap().into()
    });
    true
}

fn spectral_2d(case: &Case) -> bool {
    let module = spectral_config(case, 2).init(&mut builder()).unwrap();
    match case.array("in.x").shape.len() {
        4 => case.run(module, &["out.freq"], |module, x: Tensor<4>| {
            let (x, grid) = points_of(x);
            on_square(module.forward(x, &grid, Mode::Evaluate).unwrap(), grid).into()
        }),
        // Flat points of a square: the same values.
        _ => case.run(module, &["out.freq"], |module, x: Tensor<3>| {
            let n = x.dims()[1].isqrt();
            module.forward(x, &[n, n], Mode::Evaluate).unwrap().into()
        }),
    }
    true
}

fn down_scaler(case: &Case) -> bool {
    let hyper = case.hyper(&["in_dim", "out_dim", "interp_size", "activation_type", "downsample_mode"]);
    hyper.only("downsample_mode", &[json!("interp")]);
    let config = DownsamplerConfig {
        inputs: hyper.size("in_dim"),
        outputs: hyper.size("out_dim"),
        activation: hyper.activation("activation_type", Activation::Silu),
        dropout: 0.0,
    };
    let through = through(&hyper, "interp_size", case.shape::<4>("in.x")[1]);
    let module = config.init(&mut builder()).unwrap();
    case.run(module, &[], |module, x| module.forward(x, through, Mode::Evaluate).unwrap().into());
    true
}

fn up_scaler(case: &Case) -> bool {
    let hyper = case.hyper(&["in_dim", "out_dim", "interp_size", "activation_type", "upsample_mode"]);
    hyper.only("upsample_mode", &[json!("interp")]);
    assert_eq!(hyper.size("in_dim"), hyper.size("out_dim"), "{}: channels", case.file);
    let config = UpsamplerConfig {
        channels: hyper.size("in_dim"),
        activation: hyper.activation("activation_type", Activation::Silu),
        dropout: 0.0,
    };
    let through = through(&hyper, "interp_size", case.shape::<4>("in.x")[1]);
    let module = config.init(&mut builder()).unwrap();
    case.run(module, &[], |module, x| module.forward(x, through, Mode::Evaluate).unwrap().into());
    true
}

fn scaler_sizes(case: &Case) -> bool {
    let rows = case.json["rows"].as_array().unwrap_or_else(|| panic!("{}: no rows", case.file));
    for row in rows {
        let size = |value: &Value| {
            value.as_u64().unwrap_or_else(|| panic!("{}: {value} in {row}", case.file)) as usize
        };
        let pair = |key: &str| [size(&row[key][0]), size(&row[key][1])];
        let (fine, coarse) = (size(&row["n_f"]), size(&row["n_c"]));
        let sizes = ScalerSizes::between(fine, coarse).unwrap();
        let want = row["down_factor"].as_f64().unwrap();
        assert!((sizes.factor - want).abs() < 1e-12, "{}: {row}: factor {}", case.file, sizes.factor);
        assert_eq!(pair("up_sizes"), [sizes.middle, fine], "{}: {row}", case.file);
        assert_eq!(pair("down_sizes"), [sizes.middle, coarse], "{}: {row}", case.file);
        assert_eq!(pair("down_sizes_with_factor"), sizes.by_factor(fine), "{}: {row}", case.file);
    }
    true
}

fn spectral_decoder(case: &Case) -> bool {
    let hyper = case.hyper(&[
        "in_dim",
        "n_hidden",
        "freq_dim",
        "out_dim",
        "modes",
        "num_spectral_layers",
        "dim_feedforward",
        "spacial_fc",
        "spacial_dim",
        "activation",
        "last_activation",
    ]);
    let (dim, channels) = (hyper.size("spacial_dim"), hyper.size("freq_dim"));
    let config = SpectralDecoderConfig {
        axes: dim,
        inputs: hyper.size("in_dim"),
        coordinates: if hyper.flag("spacial_fc", false) { dim } else { 0 },
        hidden: hyper.size("n_hidden"),
        channels,
        modes: hyper.size("modes"),
        layers: hyper.size("num_spectral_layers"),
        feed_forward: hyper
            .get("dim_feedforward")
            .map_or(2 * dim * channels, |_| hyper.size("dim_feedforward")),
        outputs: hyper.size("out_dim"),
        activation: hyper.activation("activation", Activation::Silu),
        last_activation: hyper.flag("last_activation", true),
        dropout: 0.0,
        law: SpectralLaw::Normal,
    };
    let module = config.init(&mut builder()).unwrap();
    let forward = |module: &SpectralDecoder, x: Tensor<3>, at: Option<Tensor<3>>, grid: &[usize]| {
        let padding = vec![0; grid.len()];
        module.forward(x, at, grid, &padding, Mode::Evaluate, &mut |_, _| {}).unwrap()
    };
    match dim {
        1 => case.run(module, &[], |module, x: Tensor<3>| {
            let n = x.dims()[1];
            forward(module, x, grid(case), &[n]).into()
        }),
        2 => case.run(module, &[], |module, x: Tensor<4>| {
            let (x, points) = points_of(x);
            let at = grid(case).map(|at| points_of(at).0);
            on_square(forward(module, x, at, &points), points).into()
        }),
        _ => hyper.unknown("spacial_dim"),
    }
    true
}

fn pointwise_decoder(case: &Case) -> bool {
    let hyper = case.hyper(&[
        "in_dim",
        "n_hidden",
        "out_dim",
        "num_layers",
        "spacial_fc",
        "spacial_dim",
        "activation",
    ]);
    let dim = hyper.size("spacial_dim");
    let config = PointwiseDecoderConfig {
        inputs: hyper.size("in_dim"),
        coordinates: if hyper.flag("spacial_fc", false) { dim } else { 0 },
        hidden: hyper.size("n_hidden"),
        layers: hyper.size("num_layers"),
        outputs: hyper.size("out_dim"),
        activation: hyper.activation("activation", Activation::Relu),
        dropout: 0.0,
    };
    let module = config.init(&mut builder()).unwrap();
    match dim {
        1 => case.run(module, &[], |module, x: Tensor<3>| {
            module.forward(x, grid(case), Mode::Evaluate).unwrap().into()
        }),
        2 => case.run(module, &[], |module, x: Tensor<4>| {
            module.forward(x, grid(case), Mode::Evaluate).unwrap().into()
        }),
        _ => hyper.unknown("spacial_dim"),
    }
    true
}

fn unit_gaussian(case: &Case) -> bool {
    let hyper = case.hyper(&["eps"]);
    assert_eq!(hyper.number("eps"), TargetNormalizer::EPS, "{}", case.file);
    let device = device();
    let Array { shape, values } = case.array("in.x");
    let mut fit = Fit::new(&shape[1..]);
    values.chunks_exact(values.len() / shape[0]).for_each(|sample| fit.add(sample).unwrap());
    let normalizer = TargetNormalizer::new(&fit.finish().unwrap(), &device).unwrap();
    let (x, grid) = points_of(case.tensor("in.x", &device));
    let [mean, deviation] = normalizer.arrays();
    assert_eq!([&mean.shape[..], &deviation.shape], [&shape[1..]; 2], "{}", case.file);
    case.check("f64 sums", "out.mean", &mean.values);
    case.check("f64 sums", "out.std", &deviation.values);
    let closed = [false; 2];
    let y = normalizer.normalize(x, &grid, &closed).unwrap();
    case.check("composed", "out.y", &to_vec(y.clone()));
    case.check("there and back", "in.x", &to_vec(normalizer.denormalize(y, &grid, &closed).unwrap()));
    true
}

fn relative_loss(case: &Case) -> bool {
    let hyper = case.hyper(&[
        "loss_class",
        "dim",
        "dilation",
        "regularizer",
        "h",
        "beta",
        "gamma",
        "alpha",
        "delta",
        "metric_reduction",
        "return_norm",
        "eps",
    ]);
    hyper.only("dilation", &[json!(2)]);
    hyper.only("beta", &[json!(1.0)]);
    hyper.only("alpha", &[json!(0.0)]);
    hyper.only("delta", &[json!(0.0)]);
    hyper.only("metric_reduction", &[json!("L1")]);
    hyper.only("return_norm", &[json!(true)]);
    let (h, gamma) = (hyper.number("h"), hyper.number("gamma"));
    let regularized = hyper.need("regularizer") == &json!(true);
    hyper.only("regularizer", &[json!(true), json!(false)]);
    let device = device();
    match hyper.text("loss_class") {
        "WeightedL2Loss" => {
            hyper.only("dim", &[json!(1)]);
            hyper.only("eps", &[]);
            let grid_loss = interior_loss(&case.shape::<2>("in.preds")[1..], h, gamma, 0.0);
            check_loss(case, |p: Tensor<2>| {
                let column = |x: Tensor<2>| x.unsqueeze_dim::<3>(2);
                let values = column(case.tensor("in.targets", &device));
                let slopes = regularized.then(|| column(case.tensor("in.targets_prime", &device)));
                grid_loss.forward(column(p), LossTarget { values, slopes, weight: None }).unwrap()
            });
        }
        "WeightedL2Loss2d" => {
            hyper.only("dim", &[json!(2)]);
            let grid_loss = interior_loss(&case.shape::<3>("in.preds")[1..], h, gamma, hyper.number("eps"));
            check_loss(case, |p: Tensor<3>| {
                let column = |x: Tensor<3>| points_of(x.unsqueeze_dim::<4>(3)).0;
                let values = column(case.tensor("in.targets", &device));
                let slopes = regularized.then(|| points_of(case.tensor("in.targets_prime", &device)).0);
                let weight = regularized.then(|| points_of(case.tensor("in.K", &device)).0);
                grid_loss.forward(column(p), LossTarget { values, slopes, weight }).unwrap()
            });
        }
        _ => hyper.unknown("loss_class"),
    }
    true
}

/// The reference's loss: the same spacing along every axis, and differences at inner points alone.
fn interior_loss(grid: &[usize], h: f64, gamma: f64, eps: f64) -> GridLoss {
    let axes = grid.len();
    let (grid, spacing, periodic) = (grid.to_vec(), vec![h; axes], vec![false; axes]);
    GridLoss { grid, spacing, periodic, gamma, eps, channels: Vec::new() }
}

/// Compares the parts of a loss, the gradients of the total and of the data term, and the metric.
fn check_loss<const D: usize>(case: &Case, forward: impl Fn(Tensor<D>) -> Loss) {
    let gradient = |part: fn(Loss) -> Tensor<1>| {
        let p = case.tensor::<D>("in.preds", &device()).require_grad();
        let gradients = part(forward(p.clone())).backward();
        to_vec(p.grad(&gradients).expect("the prediction is tracked"))
    };
    let loss = forward(case.tensor("in.preds", &device()));
    let (preds, targets) = (&case.array("in.preds").values, &case.array("in.targets").values);
    let errors = relative_l2(preds, targets, case.shape::<D>("in.preds")[0]).unwrap();
    let found = BTreeMap::from([
        ("out.total", to_vec(loss.total)),
        ("out.loss", to_vec(loss.data)),
        ("out.reg", to_vec(loss.regularizer)),
        ("out.metric", vec![Summary::of_defined(&errors).unwrap().mean as f32]),
        ("g.in.preds", gradient(|loss| loss.total)),
        ("g.loss.in.preds", gradient(|loss| loss.data)),
    ]);
    for name in case.results() {
        assert!(found.contains_key(name), "{}: {name} was not computed", case.file);
    }
    for (name, values) in found {
        case.check("composed", name, &values);
    }
}

/// Hyper-parameters of parts that our models do not have: they must be null or 0.
const NONE: [&str; 6] =
    ["edge_feats", "num_feat_layers", "feat_extract_type", "pred_len", "n_freq_targets", "seq_len"];

/// The same: they must be null or false.
const OFF: [&str; 4] = ["bulk_regression", "spacial_residual", "batch_norm", "symmetric_init"];

/// Hyper-parameters of initialisation, training, data and of what is returned: they do not change y.
const NO_MATTER: [&str; 15] = [
    "xavier_init",
    "diagonal_weight",
    "return_attn_weight",
    "return_latent",
    "debug",
    "dropout",
    "encoder_dropout",
    "ffn_dropout",
    "decoder_dropout",
    "downscaler_dropout",
    "upscaler_dropout",
    "subsample_nodes",
    "subsample_attn",
    "gamma",
    "noise",
];

fn model_hyper<'a>(case: &'a Case, all: &'a Map<String, Value>, own: &[&str]) -> Hyper<'a> {
    let hyper = case.hyper_of(all, &[&NONE[..], &OFF, &NO_MATTER, own].concat());
    NONE.iter().for_each(|key| hyper.only(key, &[json!(0)]));
    OFF.iter().for_each(|key| hyper.only(key, &[json!(false)]));
    hyper
}

const ENCODER: [&str; 9] = [
    "n_hidden",
    "n_head",
    "pos_dim",
    "dim_feedforward",
    "attention_type",
    "layer_norm",
    "attn_norm",
    "residual_type",
    "norm_eps",
];

/// `[network.encoder]` of a config, on a grid of so many axes.
fn model_encoder(hyper: &Hyper, axes: usize, eps: f64) -> Value {
    let norm_after = hyper.flag("layer_norm", true);
    let inside = hyper.flag("attn_norm", !norm_after) || !norm_after;
    if hyper.size("pos_dim") != axes {
        hyper.unknown("pos_dim");
    }
    json!({
        "attention": attention_kind(hyper),
        "layers": hyper.size("num_encoder_layers"),
        "width": hyper.size("n_hidden"),
        "heads": hyper.size("n_head"),
        "hidden": hyper.size("dim_feedforward"),
        "activation": "relu",
        "head_norm": if inside { HeadNorm::Layer } else { HeadNorm::None },
        "residual_norm": norm_after,
        "eps": eps,
        "minus": minus(hyper),
        "gain": 0.01,
        "diagonal": 0.01,
        "equal_layers": true,
        "attention_dropout": 0.0,
        "residual_dropout": 0.0,
        "hidden_dropout": 0.0,
    })
}

/// The config of these words; what does not belong to one panics.
fn network_config(case: &Case, words: Value) -> NetworkConfig {
    serde_json::from_value(words).unwrap_or_else(|e| panic!("{}: {e}", case.file))
}

fn init(config: &NetworkConfig) -> Network {
    config.init(0, &device()).unwrap()
}

fn transformer_1d(case: &Case) -> bool {
    let network = init(&transformer_1d_config(case, case.all_hyper()));
    case.run(network, &[], |network, x| forward_1d(case, network, x));
    true
}

fn forward_1d(case: &Case, network: &Network, x: Tensor<3>) -> Outputs<3> {
    let mut others = BTreeMap::new();
    let (n, at) = (x.dims()[1], Some(line_coordinates(case)));
    let y = network.forward_at(x, &[n], at, Mode::Evaluate, &mut collect(&mut others)).unwrap();
    // The cases do not keep the last stage apart: on a line it is the output.
    let last = others.remove("out.stage.regressor");
    assert_eq!(last, Some(to_vec(y.clone())), "{}: the last stage", case.file);
    Outputs { y, others }
}

/// Encoder and output share the points of a line.
fn line_coordinates(case: &Case) -> Coordinates {
    let encoder: Tensor<3> = case.tensor("in.pos", &device());
    Coordinates { output: encoder.clone(), encoder }
}

fn transformer_1d_config(case: &Case, hyper: &Map<String, Value>) -> NetworkConfig {
    let own = ["node_feats", "n_targets", "num_encoder_layers", "decoder_type", "freq_dim"];
    let more = ["num_regressor_layers", "fourier_modes", "spacial_dim", "spacial_fc"];
    let hyper = model_hyper(case, hyper, &[&own[..], &more, &ENCODER[..8]].concat());
    hyper.only("decoder_type", &[json!("ifft")]);
    hyper.only("spacial_fc", &[json!(false)]);
    let channels = hyper.size("freq_dim");
    let words = json!({
        "kind": "transformer",
        "inputs": hyper.size("node_feats"),
        "outputs": hyper.size("n_targets"),
        "periodic": [true],
        "boundary": "free",
        "closed_coordinates": true,
        "lift": { "kind": "pointwise" },
        // The 1D model of the reference has this ε whatever it is told.
        "encoder": model_encoder(&hyper, 1, 1e-5),
        "decoder": {
            "kind": "spectral",
            "layers": hyper.size("num_regressor_layers"),
            "channels": channels,
            "modes": hyper.size("fourier_modes"),
            "feed_forward": channels,
            "activation": "silu",
            "last_activation": true,
            "coordinates": false,
            "law": "normal",
            "padding": 0.0,
            "dropout": 0.0,
        },
    });
    network_config(case, words)
}

fn transformer_2d(case: &Case) -> bool {
    let network = normalized(case, init(&transformer_2d_config(case)));
    case.run(network, &[], |network, x| forward_2d(case, network, x));
    true
}

fn forward_2d(case: &Case, network: &Network, x: Tensor<4>) -> Outputs<4> {
    let device = device();
    let mut others = BTreeMap::new();
    let (x, grid) = points_of(x);
    let (output, output_grid) = points_of(case.tensor("in.grid", &device));
    assert_eq!(network.config().output_grid(&grid).unwrap(), output_grid, "{}", case.file);
    let at = Coordinates { encoder: case.tensor("in.pos", &device), output };
    let y = network.forward_at(x, &grid, Some(at), Mode::Evaluate, &mut collect(&mut others)).unwrap();
    // Of what is inside the decoder the cases on a square keep nothing; its output they do.
    others.retain(|name, _| !name.starts_with("out.stage.regressor.") || case.has(name));
    let mut y = on_square(y, output_grid);
    // The network itself knows zero on the boundary alone.
    if case.has("in.boundary_value") {
        let value = case.tensor("in.boundary_value", &device);
        assert_eq!(y.dims(), value.dims(), "{}: in.boundary_value", case.file);
        y = y + value;
    }
    Outputs { y, others }
}

fn normalized(case: &Case, network: Network) -> Network {
    let [mean, deviation] = ["mean", "std"].map(|name| case.array(&format!("in.normalizer.{name}")).clone());
    let fit = Normalizer::new(mean, deviation).unwrap();
    network.with_normalizer(TargetNormalizer::new(&fit, &device()).unwrap())
}

fn transformer_2d_config(case: &Case) -> NetworkConfig {
    let own = ["node_feats", "n_targets", "num_encoder_layers", "decoder_type", "freq_dim", "inverse"];
    let decoder = ["num_regressor_layers", "fourier_modes", "spacial_dim", "spacial_fc", "last_activation"];
    let more = ["upsample_mode", "downsample_mode", "boundary_condition", "regressor_activation"];
    let scalers = ["downscaler_activation", "upscaler_activation", "downscaler_size", "upscaler_size"];
    let known = [&own[..], &decoder, &more, &scalers, &["normalizer_eps"], &ENCODER].concat();
    let hyper = model_hyper(case, case.all_hyper(), &known);
    hyper.only("upsample_mode", &[json!("interp")]);
    hyper.only("downsample_mode", &[json!("interp")]);
    hyper.only("spacial_dim", &[json!(2)]);
    assert_eq!(hyper.number("normalizer_eps"), TargetNormalizer::EPS, "{}", case.file);
    let (coordinates, layers) = (hyper.flag("spacial_fc", false), hyper.size("num_regressor_layers"));
    let decoder = match hyper.text("decoder_type") {
        "ifft2" => {
            let channels = hyper.size("freq_dim");
            json!({
                "kind": "spectral",
                "layers": layers,
                "channels": channels,
                "modes": hyper.size("fourier_modes"),
                "feed_forward": 2 * hyper.size("spacial_dim") * channels,
                "activation": hyper.activation("regressor_activation", Activation::Silu),
                "last_activation": hyper.flag("last_activation", true),
                "coordinates": coordinates,
                "law": "normal",
                "padding": 0.0,
                "dropout": 0.0,
            })
        }
        "pointwise" => json!({
            "kind": "pointwise",
            "coordinates": coordinates,
            "layers": layers,
            "activation": hyper.activation("regressor_activation", Activation::Relu),
            "dropout": 0.0,
        }),
        _ => hyper.unknown("decoder_type"),
    };
    let fine = case.shape::<4>("in.x")[1];
    let down = through(&hyper, "downscaler_size", fine);
    let sizes = ResampledSizes { down, up: through(&hyper, "upscaler_size", down[1][0]) };
    let inverse = hyper.flag("inverse", false);
    let interpolation: InterpolationConfig = serde_json::from_value(json!({
        "fine": fine,
        "coarse": down[1][0],
        "by_factor": hyper.need("downscaler_size")[0].is_f64(),
        "activation": hyper.activation("downscaler_activation", Activation::Silu),
        "dropout": 0.0,
        "up_activation": hyper.activation("upscaler_activation", Activation::Silu),
        "up_dropout": 0.0,
    }))
    .unwrap();
    // The network's own rule finds the sizes of the case.
    assert_eq!(interpolation.sizes([fine; 2], inverse).unwrap(), sizes, "{}", case.file);
    let words = json!({
        "kind": "transformer",
        "inputs": hyper.size("node_feats"),
        "outputs": hyper.size("n_targets"),
        "periodic": [false, false],
        "output": if inverse { "coarse" } else { "input" },
        "boundary": match hyper.text("boundary_condition") {
            "dirichlet" => Boundary::Zero,
            "free" => Boundary::Free,
            _ => hyper.unknown("boundary_condition"),
        },
        "lift": LiftConfig::Interpolation(interpolation),
        "encoder": model_encoder(&hyper, 2, hyper.number("norm_eps")),
        "decoder": decoder,
    });
    network_config(case, words)
}

/// A file that PyTorch saved, loaded into the model and run. There are no gradients to compare.
fn torch_checkpoint(case: &Case) -> bool {
    let file = case.beside(case.text("checkpoint"));
    let x = "in.x";
    for route in routes() {
        let run = || match case.text("model") {
            "simple_transformer" => {
                let config = transformer_1d_config(case, case.all_hyper());
                let network = import_torch(init(&config), &file).unwrap();
                to_vec(forward_1d(case, &network, case.tensor(x, &device())).y)
            }
            "transformer_2d" => {
                let network = import_torch(init(&transformer_2d_config(case)), &file).unwrap();
                to_vec(forward_2d(case, &normalized(case, network), case.tensor(x, &device())).y)
            }
            other => panic!("{}: unknown model {other:?}", case.file),
        };
        let found = if *route == "fused" { run() } else { galerkin::ops::composed_only(run) };
        case.check(route, "out.y", &found);
    }
    true
}

/// The learning rate and β₁ of every step. The reference computes them in f64 by the same formula; what differs is the order of its
/// operations and its cosine, a few roundings of the largest value.
fn one_cycle(case: &Case) -> bool {
    let hyper = case.hyper(&[
        "max_lr",
        "pct_start",
        "div_factor",
        "final_div_factor",
        "steps_per_epoch",
        "epochs",
        "total_steps",
        "anneal_strategy",
        "cycle_momentum",
        "base_momentum",
        "max_momentum",
        "three_phase",
    ]);
    hyper.only("anneal_strategy", &[json!("cos")]);
    hyper.only("cycle_momentum", &[json!(true)]);
    hyper.only("three_phase", &[json!(false)]);
    let (total, largest) = (hyper.size("total_steps"), hyper.number("max_lr"));
    assert_eq!(total, hyper.size("steps_per_epoch") * hyper.size("epochs"), "{}", case.file);
    let schedule = schedule(&hyper);
    let sequence = case.json["sequence"].as_array().unwrap();
    assert!(!sequence.is_empty(), "{}", case.file);
    for entry in sequence {
        let rates = schedule.at(entry["step"].as_u64().unwrap(), total as u64, largest);
        check_rates(case, rates, [&entry["lr"], &entry["beta1"]], largest);
    }
    true
}

fn schedule(hyper: &Hyper) -> Schedule {
    for (key, value) in
        [("div_factor", 1e4), ("final_div_factor", 1e4), ("base_momentum", 0.85), ("max_momentum", 0.95)]
    {
        hyper.only(key, &[json!(value)]);
    }
    Schedule::OneCycle { peak: hyper.number("pct_start"), rise: 0 }
}

fn check_rates(case: &Case, rates: Rates, [rate, beta1]: [&Value; 2], largest: f64) {
    let (rate, beta1) = (rate.as_f64().unwrap(), beta1.as_f64().unwrap());
    let near = |found: f64, golden: f64, scale: f64| (found - golden).abs() <= 8.0 * f64::EPSILON * scale;
    let fits = near(rates.rate, rate, largest) && near(rates.beta1, beta1, 1.0);
    assert!(fits, "{}: {rates:?}, golden {rate}, {beta1}", case.file);
}

/// Five steps of training: losses, norms of the gradients, the first step's gradients, the weights at the end.
fn training(case: &Case) -> bool {
    let hyper = case.hyper(&[
        "model",
        "optimizer",
        "lr",
        "betas",
        "adam_eps",
        "weight_decay",
        "grad_clip",
        "clip",
        "steps",
        "h",
        "gamma",
        "batch",
        "n",
        "onecycle",
    ]);
    hyper.only("optimizer", &[json!("Adam")]);
    hyper.only("betas", &[json!([0.9, 0.999])]);
    let config = transformer_1d_config(case, hyper.map("model"));
    let n = case.shape::<3>("in.x")[1];
    let loss = interior_loss(&[n], hyper.number("h"), hyper.number("gamma"), 0.0);
    let mut settings = AdamConfig::default();
    settings.beta2 = 0.999;
    settings.eps = hyper.number("adam_eps");
    settings.weight_decay = hyper.number("weight_decay");
    settings.max_norm = hyper.number("grad_clip");
    let (rate, steps) = (hyper.number("lr"), hyper.size("steps"));
    let (schedule, total) = match hyper.get("onecycle") {
        None => (Schedule::Constant, steps),
        Some(_) => {
            let known = ["pct_start", "div_factor", "final_div_factor", "steps_per_epoch", "epochs"];
            let momenta = ["base_momentum", "max_momentum"];
            let cycle = case.hyper_of(hyper.map("onecycle"), &[&known[..], &momenta].concat());
            (schedule(&cycle), cycle.size("steps_per_epoch") * cycle.size("epochs"))
        }
    };
    for route in routes() {
        let run = || {
            let device = device();
            let mut model = case.load(init(&config));
            let mut optimizer = Optimizer::new(&OptimizerConfig::Adam(settings.clone()), &model);
            let column = |at: usize| case.tensor::<3>("in.target", &device).narrow(2, at, 1);
            let mut found: BTreeMap<String, Vec<f32>> = BTreeMap::new();
            let (mut losses, mut regularizers, mut norms) = (Vec::new(), Vec::new(), Vec::new());
            for step in 0..steps {
                let rates = schedule.at(step as u64, total as u64, rate);
                let golden = ["lr_of_each_step", "beta1_of_each_step"].map(|name| &case.json[name][step]);
                check_rates(case, rates, golden, rate);
                let (x, at) = (case.tensor("in.x", &device), Some(line_coordinates(case)));
                let y = model.forward_at(x, &[n], at, Mode::Evaluate, &mut |_, _, _| {}).unwrap();
                let target = LossTarget { values: column(0), slopes: Some(column(1)), weight: None };
                let loss = loss.forward(y, target).unwrap();
                let gradients = loss.total.backward();
                if step == 0 {
                    let first = export_gradients(&model, &gradients);
                    found.extend(first.into_iter().map(|(name, g)| (format!("g.{name}"), g.values)));
                }
                losses.extend(to_vec(loss.total));
                regularizers.extend(to_vec(loss.regularizer));
                optimizer.collect(&model, gradients);
                let (next, norm) = optimizer.step(model, rates);
                model = next;
                norms.push(norm as f32);
            }
            found.insert("out.losses".into(), losses);
            found.insert("out.regs".into(), regularizers);
            found.insert("out.grad_norms".into(), norms);
            let weights = export(&model).into_iter();
            found.extend(weights.map(|(name, array)| (format!("out.final.{name}"), array.values)));
            found
        };
        let found = if *route == "fused" { run() } else { galerkin::ops::composed_only(run) };
        for name in case.results() {
            let values = found.get(name).unwrap_or_else(|| panic!("{}: {name} was not computed", case.file));
            case.check(route, name, values);
        }
    }
    true
}

/// Keeps the stages of a network under their golden names.
fn collect(others: &mut BTreeMap<String, Vec<f32>>) -> impl FnMut(&str, &Tensor<3>, &[usize]) {
    |name, values, grid| {
        assert_eq!(values.dims()[1], grid.iter().product::<usize>(), "{name}: points of its grid");
        others.insert(format!("out.stage.{name}"), to_vec(values.clone()));
    }
}

/// The points of a rectangle one after the other, and their numbers along both axes.
fn points_of(x: Tensor<4>) -> (Tensor<3>, [usize; 2]) {
    let [batch, n1, n2, channels] = x.dims();
    (x.reshape([batch, n1 * n2, channels]), [n1, n2])
}

/// The inverse of [`points_of`].
fn on_square(y: Tensor<3>, [n1, n2]: [usize; 2]) -> Tensor<4> {
    let [batch, _, channels] = y.dims();
    y.reshape([batch, n1, n2, channels])
}

fn builder() -> Builder {
    Builder::new(0, &device())
}

fn grid<const D: usize>(case: &Case) -> Option<Tensor<D>> {
    case.has("in.grid").then(|| case.tensor("in.grid", &device()))
}

fn attention_input(case: &Case, x: Tensor<3>, coordinates: usize) -> AttentionInput {
    let coordinates = (coordinates > 0).then(|| case.tensor("in.pos", &device()));
    AttentionInput { x, coordinates, weights: None }
}

fn attention_config(hyper: &Hyper, norm: HeadNorm, eps: f64) -> AttentionConfig {
    AttentionConfig {
        kind: attention_kind(hyper),
        features: hyper.size("d_model"),
        heads: hyper.size("n_head"),
        coordinates: hyper.size("pos_dim"),
        norm,
        eps,
        dropout: 0.0,
        gain: 0.01,
        diagonal: 0.01,
    }
}

fn attention_kind(hyper: &Hyper) -> AttentionKind {
    match hyper.text("attention_type") {
        "galerkin" => AttentionKind::Galerkin,
        "fourier" => AttentionKind::Fourier,
        "linear" => AttentionKind::Linear,
        "softmax" => AttentionKind::Softmax,
        _ => hyper.unknown("attention_type"),
    }
}

fn head_norm(hyper: &Hyper) -> HeadNorm {
    match hyper.text("norm_type") {
        "layer" => HeadNorm::Layer,
        "instance" => HeadNorm::Instance,
        _ => hyper.unknown("norm_type"),
    }
}

fn minus(hyper: &Hyper) -> bool {
    match hyper.get("residual_type").map(|_| hyper.text("residual_type")) {
        None | Some("add" | "plus") => false,
        Some("minus") => true,
        Some(_) => hyper.unknown("residual_type"),
    }
}

fn spectral_config(case: &Case, axes: usize) -> SpectralConvConfig {
    let hyper = case.hyper(&["in_dim", "out_dim", "modes", "activation"]);
    SpectralConvConfig {
        axes,
        inputs: hyper.size("in_dim"),
        outputs: hyper.size("out_dim"),
        modes: hyper.size("modes"),
        activation: hyper.activation("activation", Activation::Silu),
        dropout: 0.0,
        law: SpectralLaw::Normal,
    }
}

/// The sizes after the two resizes of an n × n grid: factors or pairs of sizes.
fn through(hyper: &Hyper, key: &str, n: usize) -> [[usize; 2]; 2] {
    let after = |step: usize, n: usize| {
        let entry = &hyper.need(key)[step];
        if let Some(factor) = entry.as_f64() {
            return [(n as f64 * factor).floor() as usize; 2];
        }
        match (entry[0].as_u64(), entry[1].as_u64()) {
            (Some(m1), Some(m2)) => [m1 as usize, m2 as usize],
            _ => hyper.unknown(key),
        }
    };
    let first = after(0, n);
    [first, after(1, first[0])]
}
