//! Cards of captured machines.

use hostler_linux::testkit::capture;

use super::*;

#[test]
fn an_n6001_with_three_virtual_functions_is_a_card_with_one_region() {
    let Some(capture) = capture("opae-dfl_n6000_sku1_nlb0") else { return };
    let found = enumerated(capture.root(), FpgaBackendConfig::default());
    assert_eq!(found.warnings, []);
    let expected =
        ["card-0000-b1-00-0", "region-0000-b1-00-0-0", "vfio-0000-b1-00-5", "vfio-0000-b1-00-6", "vfio-0000-b1-00-7"];
    assert_eq!(names(&found.devices), expected);
    let card = device(&found, "card-0000-b1-00-0");
    let common = |kind: &str, more: &[&str]| {
        let mut all = vec![
            "bitstreamID=0x5010202aecbd6e5".to_owned(),
            "device=0xbcce".to_owned(),
            "interfaceID=ce3139c959cf528ca27751c50829797a".to_owned(),
            format!("kind={kind}"),
            "model=N6001".to_owned(),
            "prCapable=true".to_owned(),
            "resource.kubernetes.io/numaNode=1".to_owned(),
            "resource.kubernetes.io/pciBusID=0000:b1:00.0".to_owned(),
            "resource.kubernetes.io/pcieRoot=pci0000:b0".to_owned(),
            "subsystemDevice=0x1771".to_owned(),
            "subsystemVendor=0x8086".to_owned(),
            "vendor=0x8086".to_owned(),
            "virtualFunction=false".to_owned(),
        ];
        all.extend(more.iter().map(|text| (*text).to_owned()));
        all.sort();
        all
    };
    // Its functions 0, 1, 2 and 4 are feature lists; 3 is a network card.
    assert_eq!(attributes(card), common("card", &["functions=4", "ports=1"]));
    assert_eq!(nodes(card), ["/dev/dfl-fme.0", "/dev/dfl-port.0"]);
    assert_eq!(card.health, Health::Healthy);
    let region = device(&found, "region-0000-b1-00-0-0");
    // The port has no `afu_id`: in this shell the accelerators sit on other functions.
    assert_eq!(attributes(region), common("region", &["port=0"]));
    assert_eq!(nodes(region), ["/dev/dfl-port.0"]);
    let all = ["card-0000-b1-00-0/functions=3", "card-0000-b1-00-0/port-0=1"];
    assert_eq!((takes(card), takes(region)), (all.map(str::to_owned).to_vec(), all.map(str::to_owned).to_vec()));
    let function = device(&found, "vfio-0000-b1-00-6");
    assert_eq!(takes(function), ["card-0000-b1-00-0/functions=1"]);
    assert!(reason(function).starts_with("no driver is bound: name 8086:bccf in backends.fpga.vfio"));
}

#[test]
fn an_n3000_of_an_older_driver_is_a_card_with_a_programmed_port() {
    let Some(capture) = capture("opae-dfl_n3000_nlb0") else { return };
    let found = enumerated(capture.root(), FpgaBackendConfig::default());
    assert_eq!(found.warnings, []);
    assert_eq!(names(&found.devices), ["card-0000-05-00-0", "region-0000-05-00-0-0", "afu-0000-05-00-0-0"]);
    let afu = device(&found, "afu-0000-05-00-0-0");
    let expected = [
        "afuID=9aeffe5f84570612c000c9660d824272",
        "bitstreamID=0x202000200000237",
        "device=0x0b30",
        "interfaceID=a5d72a3cc8b04939912cf715e5dc10ca",
        "kind=afu",
        "model=N3000",
        "port=0",
        "prCapable=true",
        "resource.kubernetes.io/pciBusID=0000:05:00.0",
        "resource.kubernetes.io/pcieRoot=pci0000:00",
        "subsystemDevice=0x0000",
        "subsystemVendor=0x8086",
        "vendor=0x8086",
        "virtualFunction=false",
    ];
    assert_eq!(attributes(afu), expected);
    assert_eq!((nodes(afu), &afu.health), (vec!["/dev/dfl-port.0"], &Health::Healthy));
    assert_eq!(attributes(device(&found, "region-0000-05-00-0-0"))[0], expected[0]);
    for name in names(&found.devices) {
        assert_eq!(takes(device(&found, name)), ["card-0000-05-00-0/port-0=1"], "{name}");
    }
}

#[test]
fn captured_cards_look_the_same_to_every_instance_and_in_every_look() {
    for name in ["opae-dfl_n6000_sku1_nlb0", "opae-dfl_n3000_nlb0"] {
        let Some(capture) = capture(name) else { continue };
        let backend = FpgaBackend::new(capture.root(), FpgaBackendConfig::default());
        let first = backend.enumerate().unwrap();
        assert_eq!(backend.enumerate().unwrap(), first);
        assert_eq!(enumerated(capture.root(), FpgaBackendConfig::default()), first);
    }
}
