//! Names of devices: the one place where words become a [`Device`].
//!
//! | name | device | feature |
//! | --- | --- | --- |
//! | `cpu` | the processor, with the fused kernels | |
//! | `vulkan` | the graphics card that Vulkan ranks first | `wgpu` |
//! | `vulkan-cpu` | Vulkan's software device (Mesa's llvmpipe), for tests on machines without a card | `wgpu` |
//! | `cuda`, `cuda:1` | an NVIDIA card, the first without a number | `cuda` |
//!
//! On all but `cpu` operations are composed of tensor operations (see [`ops`](crate::ops)). Burn's choice of kernels by
//! measured time is not compiled in: what is computed would depend on the clock.
//!
//! The golden cases pass on `vulkan-cpu`. No card was at hand for the other two. On `cuda` they are not expected to pass
//! as they stand: on cards with tensor cores Burn 0.22 multiplies f32 matrices as TF32, whose significand has 11 bits instead of 24.

pub use burn::tensor::Device;
pub use galerkin_kernels::par::{Pool, make_pool, on_pool, threads};

use crate::error::{Error, Result};

/// The device of this name, opened and without gradients; `.autodiff()` switches them on.
///
/// A name that is not known, a device whose feature was left out of the build, and one this machine does not have are
/// errors. Nothing stands in for what was asked: `vulkan` is never a software device.
///
/// ```
/// let device = galerkin::device::parse("cpu")?.autodiff();
/// # Ok::<(), galerkin::Error>(())
/// ```
pub fn parse(name: &str) -> Result<Device> {
    let refused = |why: String| Error::setting(format!("device {name:?}"), why);
    match name.split_once(':') {
        None => match name {
            "cpu" => Ok(Device::flex()),
            "vulkan" => vulkan::card().map_err(refused),
            "vulkan-cpu" => vulkan::software().map_err(refused),
            "cuda" => cuda::card(0).map_err(refused),
            _ => Err(refused(format!("expected one of {NAMES}"))),
        },
        Some(("cuda", index)) => match index.parse() {
            Ok(index) => cuda::card(index).map_err(refused),
            Err(_) => Err(refused(format!("expected the number of a card after the colon, found {index:?}"))),
        },
        Some(_) => Err(refused(format!("expected one of {NAMES}"))),
    }
}

const NAMES: &str = "cpu, vulkan, vulkan-cpu, cuda, cuda:NUMBER";

#[cfg(feature = "wgpu")]
mod vulkan {
    use std::sync::OnceLock;

    use burn::tensor::wgpu::wgpu::DeviceType;
    use burn::tensor::wgpu::{WgpuBackend, WgpuSetup};
    use burn::tensor::{Device, DeviceKind};

    type Opened = std::result::Result<Device, String>;

    pub fn card() -> Opened {
        static CARD: OnceLock<Opened> = OnceLock::new();
        let open = || {
            let (device, setup) = open(DeviceKind::DefaultDevice)?;
            let found = setup.adapter.get_info();
            match found.device_type {
                DeviceType::Cpu => Err(format!(
                    "Vulkan has no card here, only the software device {:?}, whose name is vulkan-cpu",
                    found.name
                )),
                _ => Ok(device),
            }
        };
        CARD.get_or_init(open).clone()
    }

    pub fn software() -> Opened {
        static SOFTWARE: OnceLock<Opened> = OnceLock::new();
        SOFTWARE.get_or_init(|| open(DeviceKind::Cpu).map(|(device, _)| device)).clone()
    }

    /// A device can be opened only once in a process, hence the cells above. Opening it here rather than with its first
    /// tensor makes a missing device an error and not a panic.
    fn open(kind: DeviceKind) -> std::result::Result<(Device, WgpuSetup), String> {
        let options = Device::wgpu_options().device_kind(kind).graphics_api(WgpuBackend::Vulkan);
        options.init_with_setup().map_err(|error| error.to_string())
    }
}

#[cfg(not(feature = "wgpu"))]
mod vulkan {
    use burn::tensor::Device;

    pub fn card() -> Result<Device, String> {
        Err("built without the feature `wgpu`".into())
    }

    pub fn software() -> Result<Device, String> {
        card()
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use burn::tensor::{Device, DeviceType};

    pub fn card(index: usize) -> Result<Device, String> {
        let cards = Device::enumerate(DeviceType::Cuda);
        cards.get(index).cloned().ok_or_else(|| match cards.len() {
            0 => "CUDA finds no card here, or no driver".into(),
            found => format!("CUDA has the cards 0 to {} here", found - 1),
        })
    }
}

#[cfg(not(feature = "cuda"))]
mod cuda {
    use burn::tensor::Device;

    pub fn card(_index: usize) -> Result<Device, String> {
        Err("built without the feature `cuda`".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_there() {
        assert_eq!(parse("cpu").unwrap(), Device::flex());
    }

    #[test]
    fn unknown_names_are_refused() {
        for name in
            ["", "gpu", "CPU", "cpu:0", "vulkan:0", "rocm", "cuda-cpu", "cuda:0:1", "cuda:-1", "cuda:"]
        {
            let message = parse(name).unwrap_err().to_string();
            assert!(message.contains(&format!("device {name:?}: expected ")), "{message}");
        }
    }

    #[test]
    fn a_missing_feature_is_named() {
        let missing = [
            ("vulkan", "wgpu", cfg!(feature = "wgpu")),
            ("vulkan-cpu", "wgpu", cfg!(feature = "wgpu")),
            ("cuda", "cuda", cfg!(feature = "cuda")),
            ("cuda:1", "cuda", cfg!(feature = "cuda")),
        ];
        for (name, feature, _) in missing.into_iter().filter(|(_, _, built)| !built) {
            let message = parse(name).unwrap_err().to_string();
            assert_eq!(message, format!("device {name:?}: built without the feature `{feature}`"));
        }
    }
}
