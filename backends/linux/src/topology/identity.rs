//! Finds the architecture and the model of CPU of a tree.

use super::reader::{CPU, TreeReader};

/// Bytes to read: the first CPU's entry, and s390's preface, end well before this; the whole file is a megabyte on
/// large machines, and slow to make for the kernel.
const FIRST_ENTRY: u64 = 8192;

#[derive(Default)]
pub(super) struct CpuIdentity {
    pub(super) arch: Option<String>,
    pub(super) model: Option<String>,
}

/// Asks `/proc/cpuinfo`, whose format differs between architectures, then files that only one of them has.
pub(super) fn read(reader: &TreeReader<'_>) -> CpuIdentity {
    let cpuinfo = cpuinfo(reader).unwrap_or_default();
    let arch = arch_of_cpuinfo(&cpuinfo).or_else(|| arch_of_files(reader));
    CpuIdentity { model: model(&cpuinfo, arch), arch: arch.map(str::to_owned) }
}

fn cpuinfo(reader: &TreeReader<'_>) -> Option<String> {
    let bytes = reader.tree().first_bytes("proc/cpuinfo", FIRST_ENTRY)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The value of the first line `key : value`.
fn field<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let value = fields.find(|(name, _)| name.trim() == key)?.1.trim();
    (!value.is_empty()).then_some(value)
}

fn arch_of_cpuinfo(cpuinfo: &str) -> Option<&'static str> {
    if field(cpuinfo, "vendor_id").is_some_and(|vendor| vendor.starts_with("IBM/S390")) {
        return Some("s390x");
    }
    if let Some(flags) = field(cpuinfo, "flags") {
        // `lm`: long mode, which a 32-bit x86 lacks.
        return Some(if flags.split(' ').any(|flag| flag == "lm") { "x86_64" } else { "x86" });
    }
    match (field(cpuinfo, "CPU architecture"), field(cpuinfo, "isa"), field(cpuinfo, "ISA")) {
        (Some("8" | "AArch64"), ..) => Some("aarch64"),
        (Some(_), ..) => Some("arm"),
        (_, Some(isa), _) if isa.starts_with("rv64") => Some("riscv64"),
        (_, Some(isa), _) if isa.starts_with("rv32") => Some("riscv32"),
        (.., Some(isa)) if isa.split(' ').any(|isa| isa == "loongarch64") => Some("loongarch64"),
        _ => arch_of_power(cpuinfo),
    }
}

/// Finds the architecture of Power. Other architectures name a `cpu` too; only this one has a processor version
/// register, and its CPUs of 64 bits have names.
fn arch_of_power(cpuinfo: &str) -> Option<&'static str> {
    const WIDE: [&str; 7] = ["POWER", "PPC970", "RS64", "Cell", "PA6T", "e5500", "e6500"];
    let cpu = field(cpuinfo, "cpu")?;
    if WIDE.iter().any(|name| cpu.starts_with(name)) {
        return Some("ppc64");
    }
    field(cpuinfo, "revision").is_some_and(|revision| revision.contains("(pvr ")).then_some("ppc")
}

/// Finds an architecture by files that only its kernels make. Power of 32 bits has none of its own.
fn arch_of_files(reader: &TreeReader<'_>) -> Option<&'static str> {
    const FILES: [(&str, &str); 6] = [
        ("cpu0/regs/identification/midr_el1", "aarch64"),
        ("cpu0/polarization", "s390x"),
        ("cpu0/dscr", "ppc64"),
        ("cpu0/purr", "ppc64"),
        ("cpu0/smt_snooze_delay", "ppc64"),
        ("microcode", "x86_64"),
    ];
    let mut known = FILES.iter().filter(|(file, _)| reader.tree().exists(path!("{CPU}/{file}")));
    known.next().map(|(_, arch)| *arch)
}

fn model(cpuinfo: &str, arch: Option<&str>) -> Option<String> {
    let keys: &[&str] = match arch {
        Some("ppc64" | "ppc") => &["cpu"],
        Some("riscv64" | "riscv32") => &["uarch"],
        Some("s390x") => return s390_model(cpuinfo),
        // loongarch writes it large, old arm calls it otherwise.
        _ => &["model name", "Model Name", "Processor"],
    };
    keys.iter().find_map(|key| field(cpuinfo, key)).map(str::to_owned)
}

/// Model on s390, which has one line per CPU: `processor 0: version = FF,  identification = 0133E8,  machine = 8561`.
fn s390_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("processor"))?;
    let machine = line.split_once("machine =")?.1.split(',').next()?.trim();
    (!machine.is_empty()).then(|| format!("IBM machine {machine}"))
}
