//! Attention and encoder layers.

use super::{Case, Hyper, Layout, Who, gradients, load, plain, transposed};
use crate::layers::{Given, attention_params, encoder_params, widen_all};
use crate::run::{run_attention, run_encoder};
use crate::support::widen;
use galerkin_kernels::activation::Activation;
use galerkin_kernels::attention::{Attention, Kind, Norm};
use galerkin_kernels::dropout::Key;
use galerkin_kernels::encoder::EncoderLayer;
use galerkin_kernels::reference;
use std::collections::BTreeMap;

pub fn attention(case: &Case) {
    let hyper = case.hyper(&["n_head", "d_model", "pos_dim", "attention_type", "norm", "norm_type", "eps"]);
    let norm = if hyper.flag("norm", false) { norm(&hyper) } else { Norm::None };
    let layer = shapes(case, &hyper, norm, hyper.number("eps"));
    let layout = attention_layout(&layer, "");
    let (list, given) = (load(case, &layout), given(case, &layer));

    let wide = widen_all(&list);
    let exact = reference::attention(&layer, &attention_params(&wide), given.widen().input());
    case.check_loss(&exact.y);
    case.check_all(Who::Reference, "out.", outputs(exact.y, exact.weights));

    let run = run_attention(&layer, &list, &given, case.values("in.cotangent"));
    case.check_all(Who::Kernel, "out.", outputs(run.y, run.weights));
    case.check_all(Who::Kernel, "g.", gradients(&layout, &run.grads, run.dx));
}

pub fn encoder(case: &Case) {
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
    let norm = if inside { norm(&hyper) } else { Norm::None };
    let eps = hyper.number("norm_eps");
    let layer = EncoderLayer {
        attention: shapes(case, &hyper, norm, eps),
        hidden: hyper.size("dim_feedforward"),
        activation: hyper.activation("activation_type", Activation::Relu),
        norm_after,
        eps: eps as f32,
        minus: match hyper.text("residual_type") {
            "add" => false,
            "minus" => true,
            _ => hyper.unknown("residual_type"),
        },
        residual_dropout: 0.0,
        hidden_dropout: 0.0,
    };
    let layout = encoder_layout(&layer);
    let (list, given) = (load(case, &layout), given(case, &layer.attention));

    let wide = widen_all(&list);
    let (params, exact_given) = (encoder_params(&wide), given.widen());
    let y = reference::encoder_layer(&layer, &params, exact_given.input());
    let weights = reference::attention(&layer.attention, &params.attention, exact_given.input()).weights;
    case.check_loss(&y);
    case.check_all(Who::Reference, "out.", outputs(y, weights));

    let run = run_encoder(&layer, &list, &given, case.values("in.cotangent"));
    case.check_all(Who::Kernel, "out.", outputs(run.y, run.weights));
    case.check_all(Who::Kernel, "g.", gradients(&layout, &run.grads, run.dx));
}

/// Causal linear attention exists as a reference function only; its gradients are central differences.
pub fn causal(case: &Case) {
    let hyper = case.hyper(&["batch", "n_head", "n", "d_k", "eps", "mask", "dropout"]);
    for key in ["mask", "dropout"] {
        if hyper.get(key).is_some() {
            hyper.unknown(key);
        }
    }
    let heads = hyper.size("batch") * hyper.size("n_head");
    let (n, d, eps) = (hyper.size("n"), hyper.size("d_k"), hyper.number("eps"));
    let qkv = ["q", "k", "v"].map(|name| widen(case.values(&format!("in.{name}"))));
    let run = |[q, k, v]: &[Vec<f64>; 3]| reference::causal_linear_attention(q, k, v, heads, n, d, eps);
    let exact = run(&qkv);
    case.check_all(Who::Reference, "out.", outputs(exact.y, exact.weights));

    let cotangent = case.values("in.cotangent");
    let loss =
        |qkv: &[Vec<f64>; 3]| -> f64 { run(qkv).y.iter().zip(cotangent).map(|(y, c)| y * *c as f64).sum() };
    let mut named = BTreeMap::new();
    for (which, name) in ["q", "k", "v"].iter().enumerate() {
        let mut at = qkv.clone();
        let gradient = (0..at[which].len()).map(|i| {
            const STEP: f64 = 1e-5;
            let centre = at[which][i];
            at[which][i] = centre + STEP;
            let above = loss(&at);
            at[which][i] = centre - STEP;
            let below = loss(&at);
            at[which][i] = centre;
            (above - below) / (2.0 * STEP)
        });
        named.insert(format!("g.in.{name}"), gradient.collect());
    }
    case.check_all(Who::Reference, "g.", named);
}

fn outputs<T>(y: Vec<T>, weights: Vec<T>) -> BTreeMap<String, Vec<T>> {
    BTreeMap::from([("out.y".to_string(), y), ("out.attn_weight".to_string(), weights)])
}

fn norm(hyper: &Hyper) -> Norm {
    match hyper.text("norm_type") {
        "layer" => Norm::Layer,
        "instance" => Norm::Instance,
        _ => hyper.unknown("norm_type"),
    }
}

fn shapes(case: &Case, hyper: &Hyper, norm: Norm, eps: f64) -> Attention {
    let [batch, n, d] = case.shape("in.x");
    assert_eq!(d, hyper.size("d_model"), "{}: features of in.x", case.file);
    let coordinates = hyper.size("pos_dim");
    Attention {
        kind: match hyper.text("attention_type") {
            "galerkin" => Kind::Galerkin,
            "fourier" => Kind::Fourier,
            "linear" => Kind::Linear,
            "softmax" => Kind::Softmax,
            _ => hyper.unknown("attention_type"),
        },
        batch,
        n,
        d,
        heads: hyper.size("n_head"),
        coordinates,
        // PyTorch's layer merges its heads only if it has coordinates.
        projection: coordinates > 0,
        norm,
        eps: eps as f32,
        dropout: 0.0,
        key: Key::default(),
        keep: false,
    }
}

fn given(case: &Case, layer: &Attention) -> Given {
    let x = case.values("in.x").to_vec();
    let coordinates = match layer.coordinates {
        0 => Vec::new(),
        p => {
            assert_eq!(case.shape("in.pos"), [layer.batch, layer.n, p], "{}: in.pos", case.file);
            case.values("in.pos").to_vec()
        }
    };
    Given { x, coordinates, weights: None }
}

fn attention_layout(layer: &Attention, prefix: &str) -> Layout {
    let d = layer.d;
    let mut layout = Layout::new();
    for linear in 0..3 {
        layout.push(transposed(format!("{prefix}linears.{linear}.weight"), d, d));
        layout.push(plain(format!("{prefix}linears.{linear}.bias"), d));
    }
    for norm in ["norm_K", if layer.norm_on_v() { "norm_V" } else { "norm_Q" }] {
        for part in ["weight", "bias"] {
            let e = layer.head_width();
            let of_head = |h| (format!("{prefix}{norm}.{h}.{part}"), (h * e..(h + 1) * e).collect());
            let heads = if layer.norm == Norm::None { 0 } else { layer.heads };
            layout.push((0..heads).map(of_head).collect());
        }
    }
    if layer.projection {
        layout.push(transposed(format!("{prefix}fc.weight"), layer.heads * layer.wide(), d));
        layout.push(plain(format!("{prefix}fc.bias"), d));
    } else {
        layout.extend([Vec::new(), Vec::new()]);
    }
    layout
}

fn encoder_layout(layer: &EncoderLayer) -> Layout {
    let (d, f) = (layer.attention.d, layer.hidden);
    let mut layout = attention_layout(&layer.attention, "attn.");
    layout.push(transposed("ff.lr1.weight", d, f));
    layout.push(plain("ff.lr1.bias", f));
    layout.push(transposed("ff.lr2.weight", f, d));
    layout.push(plain("ff.lr2.bias", d));
    for name in ["layer_norm1.weight", "layer_norm1.bias", "layer_norm2.weight", "layer_norm2.bias"] {
        layout.push(if layer.norm_after { plain(name, d) } else { Vec::new() });
    }
    layout
}
