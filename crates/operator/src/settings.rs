//! Structs of settings: what a field says of itself stands beside it, once, for the reader of the code and for the commented config.

/// Declares a struct of settings. The first sentence after each `///` is also what the commented config says.
macro_rules! settings {
    (
        $(#[$outer:meta])*
        pub struct $name:ident {
            $($(#[doc = $doc:literal])+ $(#[serde($($serde:tt)*)])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$outer])*
        #[non_exhaustive]
        pub struct $name {
            $($(#[doc = $doc])+ $(#[serde($($serde)*)])* pub $field: $type,)*
        }

        impl $name {
            /// Every setting with what it says of itself.
            pub(crate) const SETTINGS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($doc),+))),*];
        }
    };
}
pub(crate) use settings;
