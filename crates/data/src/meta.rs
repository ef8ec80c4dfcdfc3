//! `meta.toml`: what a dataset folder says about its arrays.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{Axis, Domain, Grid};
use crate::error::{Error, Result};
use crate::pde::Problem;
use crate::split::Parts;
use serde::{Deserialize, Serialize};

/// The version of the folder's format.
pub const FORMAT: u32 = 2;

/// Most channels of an input or a target; every one has a name.
pub(crate) const MOST_CHANNELS: usize = 1 << 16;

/// The contents of `meta.toml`, for generated and for imported data alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// [`FORMAT`].
    pub format: u32,
    /// Samples N: the length of both arrays' first axis.
    pub samples: usize,
    /// The version of this library that wrote the folder.
    pub version: String,
    /// The seed, of generated data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Names of the channels of an input: the last axis of `inputs.npy`.
    pub inputs: Vec<String>,
    /// Names of the channels of a target: the last axis of `targets.npy`.
    pub targets: Vec<String>,
    /// Names of the files it was imported from, without their folders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Which samples are for what, where the files said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Parts>,
    /// CRC-32 (that of zip and gzip) of whole files, header included, in eight hexadecimal digits, by the name of the file.
    pub checksums: BTreeMap<String, String>,
    /// Where inputs lie, and targets unless they have a domain of their own.
    pub domain: Domain,
    /// Where targets lie, if not where inputs do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_domain: Option<Domain>,
    /// The times of targets: their second axis, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Axis>,
    /// What the samples are samples of, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl Meta {
    /// Where targets lie.
    pub fn target_domain(&self) -> &Domain {
        self.target_domain.as_ref().unwrap_or(&self.domain)
    }

    /// Reads the file, also one of the format before.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let said = |error: toml::de::Error| error.to_string().trim_end().to_string();
        let table: toml::Table = text.parse().map_err(said)?;
        if !table.contains_key("format") {
            let before: Before = table.try_into().map_err(said)?;
            // Before they are given names.
            let most = before.input_channels.max(before.target_channels);
            if most > MOST_CHANNELS {
                return Err(format!("{most} channels, and there are at most {MOST_CHANNELS}"));
            }
            let meta = Self::from(before);
            meta.check().map_err(|error| error.to_string())?;
            return Ok(meta);
        }
        match table["format"].as_integer() {
            Some(format) if format == i64::from(FORMAT) => {}
            found => {
                let found = found.map_or("no number".to_string(), |format| format.to_string());
                return Err(format!("format {found}, and this version reads up to {FORMAT}"));
            }
        }
        let meta: Self = table.try_into().map_err(said)?;
        meta.check().map_err(|error| error.to_string())?;
        Ok(meta)
    }

    /// `Ok` if nothing in it contradicts itself.
    pub fn check(&self) -> Result<()> {
        self.domain.check()?;
        self.target_domain().check()?;
        for (what, names) in [("inputs", &self.inputs), ("targets", &self.targets)] {
            if names.is_empty() {
                return Err(Error::setting(what, "there is no channel"));
            }
            if names.len() > MOST_CHANNELS {
                let why = format!("there are at most {MOST_CHANNELS} channels, found {}", names.len());
                return Err(Error::setting(what, why));
            }
            let mut seen = BTreeSet::new();
            if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
                return Err(Error::setting(format!("{what}: channel {twice}"), "two have this name"));
            }
        }
        if let Some(time) = &self.time {
            time.check()?;
        }
        match &self.split {
            Some(split) => split.check(self.samples),
            None => Ok(()),
        }
    }
}

/// Channels that nobody named.
pub fn channel_names(one: &str, count: usize) -> Vec<String> {
    match count {
        1 => vec![one.to_string()],
        count => (0..count).map(|at| format!("{one}{at}")).collect(),
    }
}

/// The first format: both arrays on one grid of the unit interval or square.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    samples: usize,
    input_channels: usize,
    target_channels: usize,
    seed: Option<u64>,
    version: String,
    checksums: BTreeMap<String, String>,
    grid: GridBefore,
    problem: toml::Table,
}

#[derive(Deserialize)]
struct GridBefore {
    kind: KindBefore,
    points: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindBefore {
    Periodic,
    Vertices,
}

impl From<Before> for Meta {
    fn from(before: Before) -> Self {
        let problem = before.problem.clone().try_into::<Problem>().ok();
        let files = before.problem.get("files").and_then(|files| files.clone().try_into().ok());
        let [input, target] = problem.as_ref().map_or(["input", "target"], Problem::channels);
        Self {
            format: FORMAT,
            samples: before.samples,
            version: before.version,
            seed: before.seed,
            inputs: channel_names(input, before.input_channels),
            targets: channel_names(target, before.target_channels),
            files: files.unwrap_or_default(),
            split: None,
            checksums: before.checksums.into_iter().map(|(name, sum)| (format!("{name}.npy"), sum)).collect(),
            domain: Grid::unit(&before.grid.points, before.grid.kind == KindBefore::Periodic).into(),
            target_domain: None,
            time: None,
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Points, Sharing};
    use crate::pde::{Burgers, Darcy};

    fn meta() -> Meta {
        Meta {
            format: FORMAT,
            samples: 3,
            version: "0.1.0".into(),
            seed: Some(7),
            inputs: channel_names("a", 2),
            targets: channel_names("u", 1),
            files: vec!["burgers.mat".into()],
            split: Some(Parts { train: [0, 1], validation: [1, 2], test: [2, 3] }),
            checksums: [("inputs.npy".to_string(), "00000000".to_string())].into(),
            domain: Grid::unit(&[421, 85], false).into(),
            target_domain: Some(Domain::Points(Points {
                coordinates: vec!["x".into(), "y".into()],
                sharing: Sharing::Ragged,
                count: None,
                weights: true,
                corners: Some(3),
            })),
            time: Some(Axis::unit("t", 11, false)),
            problem: Some(Problem::Darcy(Darcy::default())),
        }
    }

    #[test]
    fn everything_survives_the_file() {
        let mut metas = vec![meta()];
        metas.push(Meta { problem: Some(Problem::Burgers(Burgers::default())), ..meta() });
        metas.push(Meta {
            problem: None,
            split: None,
            target_domain: None,
            time: None,
            seed: None,
            ..meta()
        });
        for meta in metas {
            let text = toml::to_string(&meta).unwrap();
            assert_eq!(Meta::parse(&text).unwrap(), meta, "{text}");
        }
    }

    #[test]
    fn folders_of_the_first_format_open() {
        let text = "samples = 4\ninput_channels = 1\ntarget_channels = 1\nseed = 3\nversion = \"0.1.0\"\n\
            [checksums]\ninputs = \"00000000\"\ntargets = \"ffffffff\"\n\
            [grid]\nkind = \"periodic\"\npoints = [16]\nspacing = [0.0625]\n\
            [problem]\nname = \"burgers\"\npoints = 16\n";
        let meta = Meta::parse(text).unwrap();
        assert_eq!(meta.domain, Grid::unit(&[16], true).into());
        assert_eq!(meta.checksums["targets.npy"], "ffffffff");
        assert_eq!(meta.problem, Some(Problem::Burgers(Burgers { points: 16, ..Burgers::default() })));
        let many = text.replace("input_channels = 1", "input_channels = 9223372036854775807");
        assert!(Meta::parse(&many).unwrap_err().contains("9223372036854775807 channels"));
        assert!(Meta::parse(&text.replace("[16]", "[0]")).unwrap_err().contains("0 points"));
        let imported =
            text.replace("name = \"burgers\"\npoints = 16", "name = \"imported\"\nfiles = [\"a.mat\"]");
        let meta = Meta::parse(&imported).unwrap();
        assert_eq!((meta.problem, meta.files), (None, vec!["a.mat".to_string()]));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let wrong = |change: fn(&mut Meta)| {
            let mut meta = meta();
            change(&mut meta);
            Meta::parse(&toml::to_string(&meta).unwrap()).unwrap_err()
        };
        assert!(wrong(|meta| meta.format = 3).contains("format 3"));
        assert!(wrong(|meta| meta.inputs.clear()).contains("no channel"));
        assert!(wrong(|meta| meta.inputs[1] = "a0".into()).contains("a0"));
        assert!(wrong(|meta| meta.inputs = channel_names("a", 65_537)).contains("65537"));
        assert!(wrong(|meta| meta.time = Some(Axis::unit("t", 0, false))).contains("`t` of 0 points"));
        assert!(wrong(|meta| meta.split = Some(Parts { train: [0, 4], ..Default::default() })).contains("4"));
    }

    #[test]
    fn a_problem_needs_its_name_only_and_refuses_what_it_does_not_know() {
        let problem: Problem = toml::from_str("name = \"darcy\"").unwrap();
        assert_eq!(problem, Problem::Darcy(Darcy::default()));
        let error = toml::from_str::<Problem>("name = \"burgers\"\nviscosty = 1e-3").unwrap_err().to_string();
        assert!(error.contains("viscosty"), "{error}");
    }
}
