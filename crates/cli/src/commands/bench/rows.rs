//! The rows of the tables: networks, batches and grids.

use anyhow::bail;
use galerkin::layers::AttentionKind;
use galerkin::networks::{LiftConfig, NetworkConfig, TransformerConfig};
use galerkin::presets;

use super::network::{EncoderConfig, MeasuredConfig, transformer};
use crate::args::Pass;

/// A network on a grid.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Row {
    pub(in crate::commands) name: String,
    pub(in crate::commands) network: MeasuredConfig,
    pub(in crate::commands) batch: usize,
    /// Points along each axis of the input.
    pub(in crate::commands) grid: Vec<usize>,
    /// What is timed.
    pub(super) passes: &'static [Pass],
}

pub(super) const KINDS: [(&str, AttentionKind); 4] = [
    ("gt", AttentionKind::Galerkin),
    ("ft", AttentionKind::Fourier),
    ("lt", AttentionKind::Linear),
    ("st", AttentionKind::Softmax),
];

const BOTH: &[Pass] = &[Pass::Train, Pass::Infer];

/// All of them; the tiny ones have the same names.
pub(super) fn rows(tiny: bool) -> galerkin::Result<Vec<Row>> {
    let n = |points: usize| if tiny { 64 } else { points };
    let batch = |samples: usize| if tiny { 2 } else { samples };
    let grids = |fine: usize, coarse: usize| if tiny { (29, 10) } else { (fine, coarse) };
    let mut rows = Vec::new();
    for (kind_name, kind) in KINDS {
        for (points, samples) in [(512, 8), (2048, 8), (8192, 4)] {
            let name = format!("burgers-{kind_name}-{points}");
            rows.push(Row::burgers(name, kind, batch(samples), n(points))?);
        }
    }
    for (fine, coarse) in [(85, 29), (141, 43)] {
        rows.push(Row::square(format!("darcy-{fine}"), "darcy", grids(fine, coarse), true, batch(4))?);
    }
    rows.push(Row::square("darcy-inverse-141".into(), "darcy-inverse", grids(141, 36), true, batch(4))?);
    rows.push(Row {
        name: "fno-burgers-2048".into(),
        network: MeasuredConfig::Network(presets::get("fno-burgers")?.network),
        batch: batch(8),
        grid: vec![n(2048)],
        passes: BOTH,
    });
    for fine in [85, 141] {
        rows.push(Row {
            name: format!("fno-darcy-{fine}"),
            network: MeasuredConfig::Network(presets::get("fno-darcy")?.network),
            batch: batch(4),
            grid: vec![grids(fine, fine).0; 2],
            passes: BOTH,
        });
    }
    for (kind_name, kind) in KINDS {
        let layers = if tiny { 2 } else { 10 };
        rows.push(Row::encoder(format!("encoder-{kind_name}-8192"), kind, layers, batch(4), n(8192))?);
    }
    let single = |row: Row| Row { batch: 1, passes: &[Pass::Infer], ..row };
    let burgers = Row::burgers("single-burgers-2048".into(), AttentionKind::Galerkin, 1, n(2048))?;
    rows.push(single(burgers));
    rows.push(single(Row::square("single-darcy-141".into(), "darcy", grids(141, 43), true, 1)?));
    Ok(rows)
}

impl Row {
    pub(in crate::commands) fn burgers(
        name: String,
        kind: AttentionKind,
        batch: usize,
        n: usize,
    ) -> galerkin::Result<Self> {
        let mut config = transformer("burgers")?;
        config.encoder.attention = kind;
        Ok(Self::new(name, config, vec![n], batch))
    }

    pub(in crate::commands) fn encoder(
        name: String,
        kind: AttentionKind,
        layers: usize,
        batch: usize,
        n: usize,
    ) -> galerkin::Result<Self> {
        let network = MeasuredConfig::Encoder(EncoderConfig::paper(kind, layers)?);
        Ok(Self { name, network, batch, grid: vec![n], passes: BOTH })
    }

    /// The network of a preset with an interpolation network, between two grids.
    pub(super) fn square(
        name: String,
        preset: &str,
        (fine, coarse): (usize, usize),
        by_factor: bool,
        batch: usize,
    ) -> galerkin::Result<Self> {
        let mut config = transformer(preset)?;
        if let LiftConfig::Interpolation(lift) = &mut config.lift {
            (lift.fine, lift.coarse, lift.by_factor) = (fine, coarse, by_factor);
        }
        Ok(Self::new(name, config, vec![fine; 2], batch))
    }

    fn new(name: String, config: TransformerConfig, grid: Vec<usize>, batch: usize) -> Self {
        let network = MeasuredConfig::Network(NetworkConfig::Transformer(config));
        Self { name, network, batch, grid, passes: BOTH }
    }

    pub(super) fn points(&self) -> usize {
        self.grid.iter().product()
    }
}

/// Rows whose names begin with one of the words, or all of them; a word that fits none is wrong usage.
pub(super) fn choose(rows: Vec<Row>, words: &[String]) -> anyhow::Result<Vec<Row>> {
    let fits = |row: &Row, word: &String| row.name == *word || row.name.starts_with(&format!("{word}-"));
    for word in words {
        if !rows.iter().any(|row| fits(row, word)) {
            let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
            let (what, why) = (format!("row {word:?}"), format!("the rows are {}", names.join(", ")));
            bail!(galerkin::Error::Setting { what, why });
        }
    }
    Ok(rows.into_iter().filter(|row| words.is_empty() || words.iter().any(|word| fits(row, word))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own_and_are_chosen_by_their_beginnings() {
        let names = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            choose(rows(false).unwrap(), &words).unwrap().into_iter().map(|row| row.name).collect()
        };
        let mut all = names(&[]);
        assert_eq!(all.len(), 24);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 24);
        assert_eq!(names(&["burgers-gt"]), ["burgers-gt-512", "burgers-gt-2048", "burgers-gt-8192"]);
        assert_eq!(names(&["darcy-141", "single"]).len(), 3);
        let same: Vec<String> = rows(true).unwrap().into_iter().map(|row| row.name).collect();
        assert_eq!(same, names(&[]));
        for wrong in ["burgers-g", "", "darcy-141-"] {
            let error = choose(rows(false).unwrap(), &[wrong.into()]).unwrap_err().to_string();
            assert!(error.contains("burgers-gt-512, burgers-gt-2048"), "{error}");
        }
    }
}
