//! Looking into a network: what its layers hold.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//!
//! let network = galerkin::presets::get("burgers")?.network.init(1, &Device::flex())?;
//! let u0 = Tensor::<3>::ones([1, 64, 1], &Device::flex());
//! // K̃ᵀṼ/n of the third encoder layer: one head of 96 features and a coordinate.
//! assert_eq!(network.attention_weights(u0.clone(), &[64], 2)?.dims(), [1, 1, 97, 97]);
//! assert_eq!(network.latents(u0, &[64])?[4].name, "encoder_layers.3");
//! # Ok::<(), galerkin::Error>(())
//! ```

use burn::tensor::Tensor;

use crate::error::Result;
use crate::layers::Mode;
use crate::networks::Network;

/// What a stage of a network gives.
#[derive(Clone, Debug)]
pub struct Latent {
    /// The stage, as the reference calls it.
    pub name: String,
    /// (B, points, features)
    pub values: Tensor<3>,
    /// Points along each axis.
    pub grid: Vec<usize>,
}

impl Network {
    /// What every stage gives, on the way to the prediction of x (B, points, inputs).
    pub fn latents(&self, x: Tensor<3>, grid: &[usize]) -> Result<Vec<Latent>> {
        let mut latents = Vec::new();
        self.forward_points(x, grid, Mode::Evaluate, &mut |name, values, grid| {
            latents.push(Latent { name: name.into(), values: values.clone(), grid: grid.to_vec() });
        })?;
        Ok(latents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::layers::AttentionKind;
    use crate::networks::{LiftConfig, NetworkConfig};
    use crate::presets;
    use burn::tensor::Device;

    #[test]
    fn stages_and_weights_can_be_looked_at() {
        let device = Device::flex();
        let NetworkConfig::Transformer(mut config) = presets::get("darcy").unwrap().network else { panic!() };
        (config.encoder.layers, config.encoder.attention) = (2, AttentionKind::Fourier);
        let LiftConfig::Interpolation(lift) = &mut config.lift else { panic!() };
        (lift.fine, lift.coarse) = (29, 10);
        let network = NetworkConfig::Transformer(config).init(1, &device).unwrap();
        let (x, grid) = (Tensor::ones([2, 29 * 29, 1], &device), [29, 29]);
        let latents = network.latents(x.clone(), &grid).unwrap();
        let names: Vec<&str> = latents.iter().map(|latent| latent.name.as_str()).collect();
        assert_eq!(names[..4], ["downscaler", "encoder_layers.0", "encoder_layers.1", "upscaler"]);
        assert_eq!(latents[1].grid, [10, 10]);
        assert_eq!(names.last(), Some(&"regressor"));
        assert_eq!(network.attention_weights(x.clone(), &grid, 1).unwrap().dims(), [2, 4, 100, 100]);
        // Four heads of 128/4 features and two coordinates.
        for matrix in network.projections(x.clone(), &grid, 1).unwrap() {
            assert_eq!(matrix.dims(), [2, 4, 100, 34]);
        }
        let beyond = network.attention_weights(x, &grid, 2).unwrap_err();
        assert_eq!(beyond.to_string(), "encoder layer 2: layers are 0 to 1");
        let line = Tensor::<3>::ones([2, 29, 1], &device);
        assert!(matches!(
            network.attention_weights(line.clone(), &[29], 0).unwrap_err(),
            Error::Shape { .. }
        ));
        let operator = presets::get("fno-burgers").unwrap().network.init(1, &device).unwrap();
        let none = operator.projections(line.clone(), &[29], 0).unwrap_err();
        assert_eq!(none.to_string(), "attention of a Fourier operator: it has none");
        let wrong = network.forward(line, Mode::Evaluate).unwrap_err();
        assert_eq!(wrong.to_string(), "input: expected shape (samples, n₁, n₂, channels), found [2, 29, 1]");
    }
}
