//! Names of the experiments and of the scales.

/// What the paper measured, and the same problems with our presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Burgers' equation, Table 2a.
    Burgers,
    /// Initialisations of the Galerkin transformer.
    BurgersInit,
    /// Departures from the authors' code, which the paper has no table of.
    Corrections,
    /// Darcy flow, Table 2b.
    Darcy,
    /// The inverse problem.
    DarcyInverse,
    /// The matrix of noises trained with and evaluated at.
    Noise,
    /// Costs, Table 1.
    MemorySpeed,
    /// Several seeds of one network.
    Seeds,
    /// The theorems.
    Theory,
    /// What the library's own presets reach on Burgers' equation.
    AccuracyBurgers,
    /// On Darcy flow.
    AccuracyDarcy,
    /// On the inverse problem.
    AccuracyInverse,
}

impl Experiment {
    /// Every one.
    pub const ALL: [Experiment; 12] = [
        Experiment::Burgers,
        Experiment::BurgersInit,
        Experiment::Corrections,
        Experiment::Darcy,
        Experiment::DarcyInverse,
        Experiment::Noise,
        Experiment::MemorySpeed,
        Experiment::Seeds,
        Experiment::Theory,
        Experiment::AccuracyBurgers,
        Experiment::AccuracyDarcy,
        Experiment::AccuracyInverse,
    ];

    /// As it is written in commands and folders.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Burgers => "burgers",
            Experiment::BurgersInit => "burgers-init",
            Experiment::Corrections => "corrections",
            Experiment::Darcy => "darcy",
            Experiment::DarcyInverse => "darcy-inverse",
            Experiment::Noise => "noise",
            Experiment::MemorySpeed => "memory-speed",
            Experiment::Seeds => "seeds",
            Experiment::Theory => "theory",
            Experiment::AccuracyBurgers => "accuracy-burgers",
            Experiment::AccuracyDarcy => "accuracy-darcy",
            Experiment::AccuracyInverse => "accuracy-inverse",
        }
    }

    /// In a line.
    pub fn about(self) -> &'static str {
        match self {
            Experiment::Burgers => "Burgers' equation: four kinds of attention with two norms, and FNO1d",
            Experiment::BurgersInit => {
                "The Galerkin transformer on Burgers' equation with several initialisations"
            }
            Experiment::Corrections => "What our departures from the authors' code change",
            Experiment::Darcy => "Darcy flow",
            Experiment::DarcyInverse => {
                "The coefficient of Darcy flow from its solution, at several levels of noise"
            }
            Experiment::Noise => "Trained at one level of noise, evaluated at others",
            Experiment::MemorySpeed => "Memory, speed and operations of four kinds of attention",
            Experiment::Seeds => "Several seeds",
            Experiment::Theory => "The paper's theorems: projection, lower bound, Céa's inequality",
            Experiment::AccuracyBurgers => "Our presets instead of the paper's: Burgers' equation",
            Experiment::AccuracyDarcy => "Our presets instead of the paper's: Darcy flow",
            Experiment::AccuracyInverse => "Our presets instead of the paper's: the inverse problem",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|experiment| experiment.name() == name)
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Minutes, with few samples.
    Quick,
    /// Hours on two cores.
    Cpu,
    /// All grids of the paper.
    Paper,
}

impl Scale {
    /// Every one.
    pub const ALL: [Scale; 3] = [Scale::Quick, Scale::Cpu, Scale::Paper];

    /// As it is written in commands and folders.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Quick => "quick",
            Scale::Cpu => "cpu",
            Scale::Paper => "paper",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scale| scale.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for experiment in Experiment::ALL {
            assert_eq!(Experiment::named(experiment.name()), Some(experiment));
        }
        for scale in Scale::ALL {
            assert_eq!(Scale::named(scale.name()), Some(scale));
        }
        assert_eq!((Experiment::named("all"), Scale::named("Cpu")), (None, None));
    }
}
