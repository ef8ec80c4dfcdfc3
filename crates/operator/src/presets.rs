//! Runs by name: the files `presets/*.toml` of this crate, each a whole config and, under `[problem]`, what its data are made of.

use std::path::Path;

use galerkin_data::pde::Problem;
use serde::Deserialize;

use crate::config::RunConfig;
use crate::error::{Error, Result};

// Names and texts of the files, in the order of names; the build script writes it.
include!(concat!(env!("OUT_DIR"), "/presets.rs"));

/// The names there are.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The run of this name.
pub fn get(name: &str) -> Result<RunConfig> {
    let mut table = table(name)?;
    table.remove("problem");
    RunConfig::parse(&table.to_string(), Path::new(name), &[])
}

/// What the data of a run of this name are samples of.
pub fn problem(name: &str) -> Result<Problem> {
    #[derive(Deserialize)]
    struct WithProblem {
        problem: Problem,
    }
    let with: WithProblem = table(name)?.try_into().map_err(|error| wrong(name, error))?;
    Ok(with.problem)
}

fn table(name: &str) -> Result<toml::Table> {
    let found = FILES.iter().find(|(known, _)| *known == name);
    let Some((_, text)) = found else {
        let names: Vec<_> = names().collect();
        return Err(Error::setting(format!("preset {name:?}"), format!("there are {}", names.join(", "))));
    };
    text.parse().map_err(|error| wrong(name, error))
}

fn wrong(name: &str, error: toml::de::Error) -> Error {
    Error::Config { origin: format!("preset {name}"), why: error.to_string().trim_end().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;
    use burn::tensor::Device;

    #[test]
    fn the_paper_counts_these_parameters() {
        for (name, parameters) in [
            ("burgers", 530_305),
            ("darcy", 2_220_829),
            ("darcy-inverse", 2_383_873),
            ("fno-burgers", 549_569),
            ("fno-darcy", 2_368_001),
        ] {
            let network = get(name).unwrap().network.init(1, &Device::flex()).unwrap();
            assert_eq!(network.num_params(), parameters, "{name}");
            problem(name).unwrap();
        }
        let error = get("magic").unwrap_err().to_string();
        assert_eq!(
            error,
            "preset \"magic\": there are burgers, darcy, darcy-inverse, darcy-inverse-multilevel, darcy-multilevel, fno-burgers, fno-darcy"
        );
    }
}
