//! Predictions of a trained model for inputs in a file, batch by batch.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::Device;
use galerkin_data::Array;
use galerkin_data::io::npy::{self, Rows};
use galerkin_data::normalize::Normalizer;

use crate::error::Error;
use crate::evaluate::batch_of;
use crate::layers::Mode;
use crate::models::{Field, Model, ModelConfig};
use crate::reference::to_vec;
use crate::run::{self, RunFolder, Which};
use crate::train::{field, on_grid};

/// A trained model with all that it needs to take inputs as they are.
#[derive(Debug)]
pub struct Predictor {
    model: Model,
    config: ModelConfig,
    normalizer: Option<Normalizer>,
    device: Device,
}

impl Predictor {
    /// From the folder of a run.
    pub fn open(folder: &RunFolder, which: Which, device: &Device) -> run::Result<Self> {
        let (model, config) = folder.model(which, device)?;
        Ok(Self { model, config, normalizer: folder.normalizer()?, device: device.clone() })
    }

    /// Of inputs (samples, points…, channels), not normalised; without the axis of channels if there is one alone.
    pub fn predict(&self, inputs: Array) -> run::Result<Array> {
        let mut inputs = self.with_channels(inputs)?;
        let samples = inputs.shape[0];
        let grid = inputs.shape[1..inputs.shape.len() - 1].to_vec();
        if let Some(normalizer) = &self.normalizer {
            let normalizer = on_grid(normalizer, &grid, &self.device)?;
            let len = inputs.values.len() / samples.max(1);
            for sample in inputs.values.chunks_exact_mut(len.max(1)) {
                normalizer.apply(sample)?;
            }
        }
        let places: Vec<usize> = (0..samples).collect();
        let (shape, values) =
            match self.model.forward(field(&inputs, &places, &self.device)?, Mode::Evaluate)? {
                Field::Line(y) => (y.dims().to_vec(), to_vec(y)),
                Field::Square(y) => (y.dims().to_vec(), to_vec(y)),
            };
        Ok(Array { shape, values })
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
    ) -> run::Result<Option<Vec<usize>>> {
        let rows = Rows::open(input)?;
        let [samples, rest @ ..] = rows.shape() else { return Err(wrong_input(&self.config, rows.shape())) };
        let mut one = vec![0];
        one.extend(rest);
        let one = self.with_channels(Array { shape: one, values: Vec::new() })?.shape;
        let grid = &one[1..one.len() - 1];
        let mut shape = vec![*samples];
        shape.extend(self.config.output_grid(grid)?);
        shape.push(self.config.channels()[1]);

        let mut partial = output.as_os_str().to_owned();
        partial.push(".partial");
        let partial = std::path::PathBuf::from(partial);
        let failed = |source| run::Error::Io { path: output.into(), source };
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

    fn with_channels(&self, mut inputs: Array) -> run::Result<Array> {
        let axes = self.config.dimensions();
        let [channels, _] = self.config.channels();
        if channels == 1 && inputs.shape.len() == axes + 1 {
            inputs.shape.push(1);
        }
        match inputs.shape.len() == axes + 2 && inputs.shape.last() == Some(&channels) {
            true => Ok(inputs),
            false => Err(wrong_input(&self.config, &inputs.shape)),
        }
    }
}

fn wrong_input(config: &ModelConfig, found: &[usize]) -> run::Error {
    let points = if config.dimensions() == 1 { "n" } else { "n₁, n₂" };
    let expected = format!("(samples, {points}, {})", config.channels()[0]);
    Error::Shape { what: "inputs".into(), expected, found: found.to_vec() }.into()
}
