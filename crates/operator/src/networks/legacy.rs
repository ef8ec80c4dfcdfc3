//! Configs of weight files of the first version, which named a network by its dimension and said some numbers twice.

use serde_json::{Map, Value, json};

use super::NetworkConfig;

/// The config of a weight file, as it is or in the words of the first version.
pub(crate) fn parse(text: &str) -> Result<NetworkConfig, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let value = match value.get("network") {
        None => value,
        Some(_) => renewed(&value).ok_or("a config of the first version that lacks a part")?,
    };
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn renewed(old: &Value) -> Option<Value> {
    let boundary = |old: &Value| match old.get("boundary").and_then(Value::as_str) {
        Some("dirichlet") => "zero",
        _ => "free",
    };
    let flag = |key: &str| old.get(key).and_then(Value::as_bool).unwrap_or(false);
    match old.get("network")?.as_str()? {
        kind @ ("transformer1d" | "transformer2d") => {
            let line = kind == "transformer1d";
            let (lift, output, inputs) = match line {
                true => (json!({ "kind": "pointwise" }), "input", old.get("inputs")?.clone()),
                false => {
                    let (down, up) = (old.get("downsampler")?, old.get("upsampler")?);
                    let grids = old.get("resampling")?;
                    let lift = json!({
                        "kind": "interpolation",
                        "fine": grids.get("fine")?, "coarse": grids.get("coarse")?,
                        "by_factor": grids.get("by_factor")?,
                        "activation": down.get("activation")?, "dropout": down.get("dropout")?,
                        "up_activation": up.get("activation")?, "up_dropout": up.get("dropout")?,
                    });
                    let coarse = grids.get("coarse_output")?.as_bool()?;
                    (lift, if coarse { "coarse" } else { "input" }, down.get("inputs")?.clone())
                }
            };
            let decoder = match line {
                true => spectral(old.get("decoder")?, "normal")?,
                false => {
                    let (kind, decoder) = old.get("decoder")?.as_object()?.iter().next()?;
                    match kind.as_str() {
                        "spectral" => spectral(decoder, "normal")?,
                        _ => pointwise(decoder)?,
                    }
                }
            };
            let outputs = decoder_outputs(old.get("decoder")?)?;
            Some(json!({
                "kind": "transformer", "inputs": inputs, "outputs": outputs,
                "periodic": if line { vec![true] } else { vec![false; 2] },
                "output": output, "boundary": boundary(old), "closed_coordinates": flag("closed_line"),
                "dropout": old.get("dropout")?, "lift": lift,
                "encoder": encoder(old, flag("equal_layers"))?, "decoder": decoder,
            }))
        }
        kind @ ("fno1d" | "fno2d") => {
            let mut convolutions =
                copied(old, &["layers", "channels", "modes", "feed_forward", "activation"])?;
            convolutions.extend(object(json!({
                "last_activation": false, "coordinates": true, "law": "uniform", "padding": 0.0, "dropout": 0.0,
            })));
            Some(json!({
                "kind": "fno", "inputs": old.get("inputs")?, "outputs": old.get("outputs")?,
                "periodic": if kind == "fno1d" { vec![true] } else { vec![false; 2] },
                "boundary": boundary(old), "spectral": convolutions,
            }))
        }
        _ => None,
    }
}

fn encoder(old: &Value, equal_layers: bool) -> Option<Value> {
    let layer = old.get("encoder")?;
    let attention = layer.get("attention")?;
    let mut encoder =
        copied(layer, &["hidden", "activation", "minus", "residual_dropout", "hidden_dropout"])?;
    encoder.extend(copied(attention, &["heads", "eps", "gain", "diagonal"])?);
    encoder.extend(object(json!({
        "attention": attention.get("kind")?, "width": attention.get("features")?,
        "layers": old.get("layers")?, "head_norm": attention.get("norm")?,
        "residual_norm": layer.get("norm_after")?, "attention_dropout": attention.get("dropout")?,
        "equal_layers": equal_layers,
    })));
    Some(Value::Object(encoder))
}

fn spectral(old: &Value, law: &str) -> Option<Value> {
    let keys = ["layers", "channels", "modes", "feed_forward", "activation", "last_activation", "dropout"];
    let mut new = copied(old, &keys)?;
    let coordinates = old.get("coordinates")?.as_u64()? > 0;
    new.extend(object(json!({
        "kind": "spectral", "coordinates": coordinates, "law": law, "padding": 0.0,
    })));
    Some(Value::Object(new))
}

fn pointwise(old: &Value) -> Option<Value> {
    let mut new = copied(old, &["layers", "activation", "dropout"])?;
    let coordinates = old.get("coordinates")?.as_u64()? > 0;
    new.extend(object(json!({ "kind": "pointwise", "coordinates": coordinates })));
    Some(Value::Object(new))
}

/// Of a decoder, or of the one under its kind.
fn decoder_outputs(old: &Value) -> Option<Value> {
    let inner = old.as_object()?.values().next()?;
    old.get("outputs").or_else(|| inner.get("outputs")).cloned()
}

fn copied(old: &Value, keys: &[&str]) -> Option<Map<String, Value>> {
    keys.iter().map(|key| Some((key.to_string(), old.get(*key)?.clone()))).collect()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
