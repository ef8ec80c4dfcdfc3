//! Lists `presets/*.toml`, so that a preset is a file and nothing else.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=presets");
    let mut files = Vec::new();
    for entry in fs::read_dir("presets")? {
        let path = entry?.path();
        if let (Some(name), Some("toml")) =
            (path.file_stem().and_then(|name| name.to_str()), path.extension().and_then(|e| e.to_str()))
        {
            files.push((name.to_string(), fs::read_to_string(&path)?));
        }
    }
    files.sort();
    let code = format!("const FILES: &[(&str, &str)] = &{files:?};\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("presets.rs"), code)
}
