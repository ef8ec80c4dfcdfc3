//! A trained model: a network with the normaliser of its inputs, for inputs in memory and in files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::Device;
use galerkin_data::io::npy::{self, Rows};
use galerkin_data::normalize::Normalizer;
use galerkin_data::{Array, Grid};

use crate::error::{Error, Result};
use crate::layers::Mode;
use crate::networks::{Network, NetworkConfig, wrong_shape_of};
use crate::reference::to_vec;
use crate::run::{RunFolder, Snapshot};
use crate::samples::{batch_of, on_grid, rows};
use crate::weights;

/// A trained model with all that it needs to take inputs as they are.
#[derive(Debug)]
pub struct Model {
    network: Network,
    normalizer: Option<Normalizer>,
    device: Device,
}

impl Model {
    /// From the folder of a run, or from a weight file, which must take its inputs as they are, on the processor.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match path.is_dir() {
            true => Self::open(&RunFolder::new(path), Snapshot::Last, &Device::flex()),
            false => {
                let network = weights::load(path)?.into_network(&Device::flex())?;
                Ok(Self { network, normalizer: None, device: Device::flex() })
            }
        }
    }

    /// From the folder of a run.
    pub fn open(folder: &RunFolder, snapshot: Snapshot, device: &Device) -> Result<Self> {
        let network = folder.network(snapshot, device)?;
        Ok(Self { network, normalizer: folder.normalizer()?, device: device.clone() })
    }

    /// The network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Of inputs (samples, points…, channels), not normalised; without the axis of channels if there is one alone.
    pub fn predict(&self, inputs: Array) -> Result<Array> {
        let mut inputs = self.with_channels(inputs)?;
        let samples = inputs.shape[0];
        let grid = inputs.shape[1..inputs.shape.len() - 1].to_vec();
        let config = self.network.config();
        if let Some(normalizer) = &self.normalizer {
            let mut axes = Grid::unit(&grid, false);
            axes.axes
                .iter_mut()
                .zip(config.periodic())
                .for_each(|(axis, periodic)| axis.periodic = *periodic);
            let normalizer = on_grid(normalizer, &axes, &self.device)?;
            let len = inputs.values.len() / samples.max(1);
            for sample in inputs.values.chunks_exact_mut(len.max(1)) {
                normalizer.apply(sample)?;
            }
        }
        let places: Vec<usize> = (0..samples).collect();
        let x = rows(&inputs, &places, &self.device);
        let y = self.network.forward_points(x, &grid, Mode::Evaluate, &mut |_, _, _| {})?;
        let shape = [vec![samples], config.output_grid(&grid)?, vec![config.channels()[1]]].concat();
        Ok(Array { shape, values: to_vec(y) })
    }

    /// Reads inputs from one `.npy` file and writes predictions to another, a few samples at a time. `watch` is told how many of how
    /// many are done, and ends it by answering `Break`; the output appears when it is complete.
    ///
    /// Gives the shape of the output.
    pub fn predict_file(
        &self,
        input: &Path,
        output: &Path,
        watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Option<Vec<usize>>> {
        let rows = Rows::open(input)?;
        let [samples, rest @ ..] = rows.shape() else {
            return Err(wrong_input(self.network.config(), rows.shape()));
        };
        let mut one = vec![0];
        one.extend(rest);
        let one = self.with_channels(Array { shape: one, values: Vec::new() })?.shape;
        let grid = &one[1..one.len() - 1];
        let mut shape = vec![*samples];
        shape.extend(self.network.config().output_grid(grid)?);
        shape.push(self.network.config().channels()[1]);

        let mut partial = output.as_os_str().to_owned();
        partial.push(".partial");
        let partial = std::path::PathBuf::from(partial);
        let failed = |source| Error::Io { path: output.into(), source };
        let mut file = BufWriter::new(File::create(&partial).map_err(failed)?);
        file.write_all(&npy::header(&shape)).map_err(failed)?;
        let batch = batch_of(grid.iter().product());
        for first in (0..*samples).step_by(batch) {
            let count = batch.min(samples - first);
            let mut shape = one.clone();
            shape[0] = count;
            let predicted = self.predict(Array { shape, values: rows.read(first, count)? })?;
            let bytes: Vec<u8> = predicted.values.iter().flat_map(|v| v.to_le_bytes()).collect();
            file.write_all(&bytes).map_err(failed)?;
            if watch(first + count, *samples).is_break() {
                drop(file);
                std::fs::remove_file(&partial).map_err(failed)?;
                return Ok(None);
            }
        }
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&partial, output).map_err(failed)?;
        Ok(Some(shape))
    }

    fn with_channels(&self, mut inputs: Array) -> Result<Array> {
        let axes = self.network.config().axes();
        let [channels, _] = self.network.config().channels();
        if channels == 1 && inputs.shape.len() == axes + 1 {
            inputs.shape.push(1);
        }
        match inputs.shape.len() == axes + 2 && inputs.shape.last() == Some(&channels) {
            true => Ok(inputs),
            false => Err(wrong_input(self.network.config(), &inputs.shape)),
        }
    }
}

fn wrong_input(config: &NetworkConfig, found: &[usize]) -> Error {
    wrong_shape_of(config.axes(), &config.channels()[0].to_string(), found)
}
