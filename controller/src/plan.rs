//! `hostler-controller plan`: tells which of the pods that wait for a place get one, where, and why the others do not.
//! The command changes nothing.
//!
//! ```text
//!   files, standard input ──┐
//!   a live cluster ─────────┼─► read ─► manifests ─► changes ─► the planner ─► answer ─► table, JSON, YAML
//!   captures of nodes ──────┘              └─► pods to place ───────┘
//! ```

mod answer;
mod capture;
mod cluster;
mod manifests;
mod pods;
mod read;
mod reading;
mod request;
mod table;
mod workload;

use std::{io::Write, path::PathBuf, str::FromStr};

use hostler_allocator::{
    plan::{Change, PlanBoxes, PlanOptions, PodSet, Verdict},
    structured::{Feature, Features},
};
use hostler_api::{Chain, KubernetesVersion, did_you_mean};
use hostler_cli::{
    exit::CliOutcome,
    output::{DocumentFormat, write_document},
    parts::shape,
};

use self::{capture::NodeCapture, pods::AskedPods};

pub(crate) use self::{
    answer::{PlanAnswer, ReasonAnswer},
    cluster::{ClusterReadError, LiveCluster},
    manifests::{InputLayer, Manifests},
    pods::{asked_or_alone, waiting_set},
    read::{InputProblem, InputText, ObjectHead, RawObject, for_each_object, for_each_text},
    reading::{QuestionError, read_stock, runtime},
    request::{PlanFile, PlanRequest},
};

use crate::{
    called,
    cluster_args::NamespaceArgs,
    remote::{self, RemoteArgs},
};

/// The DeviceClasses of hostler's deployment.
pub(crate) const HOSTLER_CLASSES: &str = include_str!("../../deploy/cluster/deviceclasses.yaml");

const EXAMPLES: &str = "\
Changes for --what-if, which are made in their order before anything is asked:
  drain node NODE                 its pods need another place, and none come to it
  remove node NODE                the same, and its devices are gone
  add node like NODE × COUNT      more nodes of a kind, with devices of their own
  taint node NODE KEY=VALUE:EFFECT, with - behind it to take it away
  taint device DRIVER/POOL/DEVICE KEY=VALUE:EFFECT, with * for every pool or device
  free claim NAMESPACE/NAME       what it was given is free

Exit codes: 0 all pods that want a place get one, 1 some do not, 2 wrong usage or wrong input.";

/// Say which pods fit where, and why others do not: from manifests, a live cluster, or both
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
#[group(id = "input", required = !called::is_plugin(), multiple = true)]
pub(crate) struct PlanArgs {
    /// Manifests in YAML or JSON: nodes, slices, classes, pods, claims, workloads; a folder is read with all that is
    /// below it; - for standard input. What they say goes before what a cluster says
    #[arg(short, long = "filename", value_name = "FILE|DIR", group = "input")]
    files: Vec<PathBuf>,
    /// Read the cluster; nothing is written to it. kubectl hostler does so unless told --offline
    #[arg(long, group = "input", conflicts_with = "controller")]
    cluster: bool,
    /// Plan with files and captures alone
    #[arg(long, requires = "input", conflicts_with_all = ["cluster", "controller", "kubeconfig", "context", "server"])]
    offline: bool,
    #[command(flatten)]
    place: NamespaceArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Add a node with the devices of a captured machine; it is called NODE, or as the file is. Without a cluster the
    /// classes of hostler's deployment are there as well
    #[arg(long, value_name = "[NODE=]FILE.tar.zst", group = "input")]
    node_capture: Vec<NodeCapture>,
    /// Change the cluster before anything is asked; may be repeated
    #[arg(long, value_name = "CHANGE")]
    what_if: Vec<Change>,
    /// Kubernetes whose scheduler is meant: 1.34 to 1.37 [default: that of the cluster, else 1.36]
    #[arg(long, value_name = "VERSION", value_parser = version)]
    kubernetes: Option<KubernetesVersion>,
    /// Feature gates that are not as that version has them: NAME=true or NAME=false
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',')]
    feature_gates: Vec<FeatureGate>,
    /// How the answer looks; wide has every node
    #[arg(short, long, value_parser = shape::<DocumentFormat>(), default_value = "table")]
    output: DocumentFormat,
}

/// Answers, on `out`.
pub(crate) fn run(args: &PlanArgs, out: &mut dyn Write) -> Result<CliOutcome, QuestionError> {
    let answer = if args.remote.is_named() { args.ask_controller()? } else { args.answer()? };
    write_document(&answer, args.output, out, |width| table::text(&answer, width))?;
    Ok(if answer.verdict == Verdict::Fits { CliOutcome::Done } else { CliOutcome::NotInOrder })
}

/// A question to the planner.
#[derive(Debug)]
pub(crate) struct PlanQuestion<'a> {
    /// The cluster, and the pods to place.
    pub(crate) manifests: Manifests,
    /// Changes that are made before planning.
    pub(crate) changes: &'a [Change],
}

impl PlanQuestion<'_> {
    /// Places as many pods as fit, within the boxes; `problems` are those of reading.
    pub(crate) fn answer(
        mut self,
        options: &PlanOptions,
        boxes: &mut PlanBoxes,
        mut problems: Vec<InputProblem>,
    ) -> Result<PlanAnswer, Vec<InputProblem>> {
        let mut asked = pods::asked_or_alone(&self.manifests);
        problems.extend(pods::excess(&asked));
        let mut notes = pods::notes(&self.manifests);
        // Pods that have lost their place come before pods that never had one.
        asked.splice(..0, change(&mut self.manifests, self.changes, &mut problems));
        if !problems.is_empty() {
            return Err(problems);
        }
        let snapshot = self.manifests.snapshot();
        notes.extend(snapshot.unseen().iter().cloned());
        let (sets, notes_of_sets): (Vec<PodSet>, Vec<Vec<String>>) =
            asked.into_iter().map(|asked| (asked.set, asked.notes)).unzip();
        let plan = snapshot.plan_within(&sets, options, boxes);
        Ok(PlanAnswer::new(&snapshot, &plan, options, notes_of_sets, notes))
    }
}

/// Makes the changes; returns the pods that lose their place by them.
fn change(manifests: &mut Manifests, changes: &[Change], problems: &mut Vec<InputProblem>) -> Vec<AskedPods> {
    let mut evicted = Vec::new();
    for change in changes {
        let note = format!("without its place after: {change}");
        match manifests.facts.apply(change) {
            Ok(sets) => evicted.extend(sets.into_iter().map(|set| AskedPods { set, notes: vec![note.clone()] })),
            Err(error) => problems.push(InputProblem::whole(format!("--what-if '{change}'"), Chain(&error))),
        }
    }
    evicted
}

impl PlanArgs {
    fn answer(&self) -> Result<PlanAnswer, QuestionError> {
        let (mut manifests, mut problems) = (Manifests::default(), Vec::new());
        manifests.namespace = self.namespace()?;
        let server = self.read(&mut manifests, &mut problems)?;
        let version = self.kubernetes.or(server).unwrap_or_default();
        let options = PlanOptions { version, features: Some(self.features(version)), ..PlanOptions::default() };
        let question = PlanQuestion { manifests, changes: &self.what_if };
        question.answer(&options, &mut PlanBoxes::default(), problems).map_err(QuestionError::Input)
    }

    /// Has a controller answer, from what it knows already.
    fn ask_controller(&self) -> Result<PlanAnswer, QuestionError> {
        let (mut request, mut problems) = (PlanRequest::default(), Vec::new());
        if self.place.named().is_some() {
            problems
                .push(InputProblem::whole("--namespace", "a controller is not told of it; write it into the files"));
        }
        for capture in &self.node_capture {
            match capture.read() {
                Ok(InputText { name, text }) => request.files.push(PlanFile { name, text }),
                Err(error) => problems.push(InputProblem::whole(capture.source(), Chain(&error))),
            }
        }
        let mut take = |InputText { name, text }| request.files.push(PlanFile { name, text });
        for_each_text(&self.files, &mut problems, &mut take);
        if !problems.is_empty() {
            return Err(QuestionError::Input(problems));
        }
        request.what_if = self.what_if.iter().map(ToString::to_string).collect();
        request.kubernetes = self.kubernetes.map(|version| version.to_string());
        let gate = |gate: &FeatureGate| (gate.feature.gate().to_owned(), gate.is_on);
        request.feature_gates = self.feature_gates.iter().map(gate).collect();
        runtime()?.block_on(async {
            let service = self.remote.service(&self.place.cluster)?;
            Ok(remote::ask(&service, "/v1/plans", &request).await?)
        })
    }

    /// Reads all inputs; returns the version of the cluster, if one is read.
    fn read(
        &self,
        manifests: &mut Manifests,
        problems: &mut Vec<InputProblem>,
    ) -> Result<Option<KubernetesVersion>, QuestionError> {
        let server = self.read_cluster(manifests, problems)?;
        if !self.node_capture.is_empty() && !self.reads_cluster() {
            // Devices of a captured node are selected by the classes of the cluster that it joins.
            let classes = InputText { name: "classes of hostler".to_owned(), text: HOSTLER_CLASSES.to_owned() };
            manifests.read(&classes, InputLayer::Base, problems);
        }
        for capture in &self.node_capture {
            match capture.read() {
                Ok(input) => manifests.read(&input, InputLayer::Base, problems),
                Err(error) => problems.push(InputProblem::whole(capture.source(), Chain(&error))),
            }
        }
        let mut unreadable = Vec::new();
        for_each_text(&self.files, &mut unreadable, &mut |input| manifests.read(&input, InputLayer::Files, problems));
        problems.extend(unreadable);
        Ok(server)
    }

    /// Returns the namespace of objects that name none. Without a cluster no kubeconfig is read.
    fn namespace(&self) -> Result<String, QuestionError> {
        match self.reads_cluster() {
            true => Ok(self.place.namespace().map_err(ClusterReadError::connect)?),
            false => Ok(self.place.named().unwrap_or_default().to_owned()),
        }
    }

    /// True if the cluster is read. Users of kubectl mean the cluster of their context, whatever files they name.
    fn reads_cluster(&self) -> bool {
        self.cluster || self.place.cluster.is_named() || (called::is_plugin() && !self.offline)
    }

    fn read_cluster(
        &self,
        manifests: &mut Manifests,
        problems: &mut Vec<InputProblem>,
    ) -> Result<Option<KubernetesVersion>, QuestionError> {
        if !self.reads_cluster() {
            return Ok(None);
        }
        runtime()?.block_on(async {
            let cluster = LiveCluster::connect(&self.place.cluster).await?;
            cluster.read(&mut |input| manifests.read(&input, InputLayer::Base, problems)).await?;
            if self.kubernetes.is_some() {
                return Ok(None);
            }
            let minor = cluster.minor_release().await?;
            match version(&format!("1.{minor}")) {
                Ok(version) => Ok(Some(version)),
                Err(reason) => {
                    let reason = format!("its version is not known here: {reason}; choose one with --kubernetes");
                    problems.push(InputProblem::whole(cluster::SOURCE, reason));
                    Ok(None)
                }
            }
        })
    }

    fn features(&self, version: KubernetesVersion) -> Features {
        features(version, &self.feature_gates)
    }
}

/// Returns the features of a version, with gates that differ from the version's.
pub(crate) fn features(version: KubernetesVersion, gates: &[FeatureGate]) -> Features {
    gates.iter().fold(Features::for_version(version), |features, gate| match gate.is_on {
        true => features.with(gate.feature),
        false => features.without(gate.feature),
    })
}

/// Parses a version such as `1.36`.
pub(crate) fn version(text: &str) -> Result<KubernetesVersion, String> {
    let known = KubernetesVersion::ALL.into_iter().find(|version| version.as_str() == text.trim_start_matches('v'));
    known.ok_or_else(|| format!("{text:?} is not one of 1.34, 1.35, 1.36 and 1.37"))
}

/// A feature gate that is on or off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeatureGate {
    feature: Feature,
    is_on: bool,
}

impl FromStr for FeatureGate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("write NAME=true or NAME=false")?;
        let is_on = value.parse().map_err(|_| format!("{value:?} is neither true nor false"))?;
        let found = Feature::ALL.into_iter().find(|feature| feature.gate() == name);
        let feature = found.ok_or_else(|| {
            let known = Feature::ALL.map(Feature::gate);
            let hint = did_you_mean(name, known.map(str::to_owned));
            format!("{name} changes nothing in what is allocated; what does: {}{hint}", known.join(", "))
        })?;
        Ok(Self { feature, is_on })
    }
}
