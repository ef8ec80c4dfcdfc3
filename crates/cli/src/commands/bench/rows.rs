//! The rows of the tables: networks, batches and grids.

use anyhow::bail;
use galerkin::layers::AttentionKind;
use galerkin::models::{FnoConfig, ModelConfig, Transformer1dConfig, Transformer2dConfig};

use super::network::{EncoderConfig, NetworkConfig};
use crate::args::Pass;

/// A network on a grid.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Row {
    pub(in crate::commands) name: String,
    pub(in crate::commands) network: NetworkConfig,
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
pub(super) fn rows(tiny: bool) -> Vec<Row> {
    let n = |points: usize| if tiny { 64 } else { points };
    let batch = |samples: usize| if tiny { 2 } else { samples };
    let grids = |fine: usize, coarse: usize| if tiny { (29, 10) } else { (fine, coarse) };
    let mut rows = Vec::new();
    for (kind_name, kind) in KINDS {
        for (points, samples) in [(512, 8), (2048, 8), (8192, 4)] {
            let name = format!("burgers-{kind_name}-{points}");
            rows.push(Row::burgers(name, kind, batch(samples), n(points)));
        }
    }
    let galerkin = AttentionKind::Galerkin;
    for (fine, coarse) in [(85, 29), (141, 43)] {
        let config = |(fine, coarse)| Transformer2dConfig::darcy(galerkin, fine, coarse);
        rows.push(Row::darcy(format!("darcy-{fine}"), config(grids(fine, coarse)), batch(4)));
    }
    let (fine, coarse) = grids(141, 36);
    let inverse = Transformer2dConfig::darcy_inverse(galerkin, fine, coarse);
    rows.push(Row::darcy("darcy-inverse-141".into(), inverse, batch(4)));
    rows.push(Row {
        name: "fno-burgers-2048".into(),
        network: NetworkConfig::Model(ModelConfig::Fno1d(FnoConfig::burgers())),
        batch: batch(8),
        grid: vec![n(2048)],
        passes: BOTH,
    });
    for fine in [85, 141] {
        rows.push(Row {
            name: format!("fno-darcy-{fine}"),
            network: NetworkConfig::Model(ModelConfig::Fno2d(FnoConfig::darcy())),
            batch: batch(4),
            grid: vec![grids(fine, fine).0; 2],
            passes: BOTH,
        });
    }
    for (kind_name, kind) in KINDS {
        let layers = if tiny { 2 } else { 10 };
        rows.push(Row::encoder(format!("encoder-{kind_name}-8192"), kind, layers, batch(4), n(8192)));
    }
    let single = |row: Row| Row { batch: 1, passes: &[Pass::Infer], ..row };
    rows.push(single(Row::burgers("single-burgers-2048".into(), galerkin, 1, n(2048))));
    let (fine, coarse) = grids(141, 43);
    let darcy = Transformer2dConfig::darcy(galerkin, fine, coarse);
    rows.push(single(Row::darcy("single-darcy-141".into(), darcy, 1)));
    rows
}

impl Row {
    pub(in crate::commands) fn burgers(name: String, kind: AttentionKind, batch: usize, n: usize) -> Self {
        let network = NetworkConfig::Model(ModelConfig::Transformer1d(Transformer1dConfig::burgers(kind)));
        Self { name, network, batch, grid: vec![n], passes: BOTH }
    }

    pub(in crate::commands) fn encoder(
        name: String,
        kind: AttentionKind,
        layers: usize,
        batch: usize,
        n: usize,
    ) -> Self {
        let network = NetworkConfig::Encoder(EncoderConfig::paper(kind, layers));
        Self { name, network, batch, grid: vec![n], passes: BOTH }
    }

    pub(super) fn darcy(name: String, config: Transformer2dConfig, batch: usize) -> Self {
        let grid = vec![config.resampling.fine; 2];
        let network = NetworkConfig::Model(ModelConfig::Transformer2d(config));
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
            choose(rows(false), &words).unwrap().into_iter().map(|row| row.name).collect()
        };
        let mut all = names(&[]);
        assert_eq!(all.len(), 24);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 24);
        assert_eq!(names(&["burgers-gt"]), ["burgers-gt-512", "burgers-gt-2048", "burgers-gt-8192"]);
        assert_eq!(names(&["darcy-141", "single"]).len(), 3);
        let same: Vec<String> = rows(true).into_iter().map(|row| row.name).collect();
        assert_eq!(same, names(&[]));
        for wrong in ["burgers-g", "", "darcy-141-"] {
            let error = choose(rows(false), &[wrong.into()]).unwrap_err().to_string();
            assert!(error.contains("burgers-gt-512, burgers-gt-2048"), "{error}");
        }
    }
}
