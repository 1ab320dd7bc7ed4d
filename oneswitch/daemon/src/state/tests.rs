use super::*;

const SERVER: &str = r#"
[oneswitchd]
datapath_id = "0000000000000001"
state = "STATE"
[[switch]]
name = "hypervisor"
virt = "unix:/v"
edge = "unix:/e"
[[port]]
number = 1
switch = "hypervisor"
interface = "vm1"
[[port]]
number = 2
switch = "hypervisor"
interface = "vm2"
"#;

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("made/ports.json")
    }

    /// Returns the server's configuration with further lines.
    fn config(&self, more: &str) -> Config {
        let text = SERVER.replace("STATE", &self.path().display().to_string());
        Config::parse("server.toml", &format!("{text}{more}")).unwrap()
    }

    fn save(&self, ports: &[PortConfig]) {
        StateFile::new(&self.config(""))
            .unwrap()
            .save(ports)
            .unwrap();
    }

    fn write(&self, text: &str) {
        make_parent(&self.path()).unwrap();
        fs::write(self.path(), text).unwrap();
    }

    /// Returns the ports that the next start maps, abbreviated.
    fn ports(&self, more: &str) -> Result<Vec<String>, String> {
        let ports = ports(&self.config(more))?;
        Ok(ports
            .iter()
            .map(|port| format!("{} {} {}", port.number, port.name, port.interface))
            .collect())
    }
}

fn port(number: u32, name: &str, interface: &str) -> PortConfig {
    PortConfig {
        number,
        name: name.into(),
        switch: "hypervisor".into(),
        interface: interface.into(),
        executor: None,
        gathered_from: None,
        owner: None,
    }
}

const THIRD: &str = "[[port]]\nnumber = 3\nswitch = \"hypervisor\"\ninterface = \"vm3\"\n";

#[test]
fn without_a_file_the_configuration_is_what_there_is() {
    assert_eq!(
        Fixture::new().ports("").unwrap(),
        ["1 vm1 vm1", "2 vm2 vm2"]
    );
}

#[test]
fn a_chosen_executor_is_kept_and_must_be_there() {
    let fixture = Fixture::new();
    let executed = |executor: &str| PortConfig {
        executor: Some(executor.into()),
        ..port(1, "vm1", "vm1")
    };
    fixture.save(&[executed(HOME), port(2, "vm2", "vm2")]);
    let started = ports(&fixture.config("")).unwrap();
    let executors: Vec<_> = started.into_iter().map(|port| port.executor).collect();
    assert_eq!(executors, [Some(HOME.into()), None]);
    fixture.save(&[executed("snic9")]);
    let refused = fixture.ports("").unwrap_err();
    assert!(refused.contains("unknown switch \"snic9\""), "{refused}");
}

#[test]
fn an_owner_is_kept_and_may_be_missing_in_the_file() {
    let fixture = Fixture::new();
    let owned = PortConfig {
        owner: Some("nfagent/acme/lb1".into()),
        ..port(1, "vm1", "vm1")
    };
    fixture.save(&[owned, port(2, "vm2", "vm2")]);
    let started = ports(&fixture.config("")).unwrap();
    let owners: Vec<_> = started.into_iter().map(|port| port.owner).collect();
    assert_eq!(owners, [Some("nfagent/acme/lb1".into()), None]);
}

#[test]
fn the_file_wins_and_new_entries_of_the_configuration_appear() {
    let fixture = Fixture::new();
    fixture.save(&[
        port(1, "vm1", "elsewhere"),
        port(2, "vm2", "vm2"),
        port(9, "nine", "nf9"),
    ]);
    assert_eq!(
        fixture.ports("").unwrap(),
        ["1 vm1 elsewhere", "2 vm2 vm2", "9 nine nf9"]
    );
    assert_eq!(
        fixture.ports(THIRD).unwrap(),
        ["1 vm1 elsewhere", "2 vm2 vm2", "9 nine nf9", "3 vm3 vm3"]
    );
}

#[test]
fn a_deleted_port_stays_deleted_until_its_entry_changes_or_the_file_goes() {
    let fixture = Fixture::new();
    fixture.save(&[port(1, "vm1", "vm1")]);
    assert_eq!(fixture.ports("").unwrap(), ["1 vm1 vm1"]);
    let text = fs::read_to_string(fixture.path()).unwrap();
    fixture.write(&text.replace("\"interface\": \"vm2\"", "\"interface\": \"was-vm2\""));
    assert_eq!(
        fixture.ports("").unwrap(),
        ["1 vm1 vm1", "2 vm2 vm2"],
        "the entry has changed"
    );
    fs::remove_file(fixture.path()).unwrap();
    assert_eq!(fixture.ports("").unwrap(), ["1 vm1 vm1", "2 vm2 vm2"]);
}

#[test]
fn nothing_but_the_file_is_left_behind() {
    let fixture = Fixture::new();
    fixture.save(&[]);
    fixture.save(&[port(1, "vm1", "vm1")]);
    let names: Vec<_> = fs::read_dir(fixture.path().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["ports.json"]);
}

#[test]
fn a_broken_file_is_named_and_not_ignored() {
    let fixture = Fixture::new();
    for (text, complaint) in [
        ("", "made/ports.json:1: not a state file of oneswitchd: EOF"),
        (
            "{\n\"version\": 1,\n\"ports\": 7}",
            "made/ports.json:3: not a state file of oneswitchd: invalid type",
        ),
        (
            "{\"version\": 1, \"ports\": [], \"colour\": 1}",
            "unknown field `colour`",
        ),
        (
            "{\"version\": 2, \"ports\": []}",
            "made/ports.json: format version 2; this oneswitchd writes 1",
        ),
    ] {
        fixture.write(text);
        let error = fixture.ports("").unwrap_err();
        assert!(error.contains(complaint), "{error}");
    }
    fs::remove_file(fixture.path()).unwrap();
    fs::create_dir(fixture.path()).unwrap();
    let error = fixture.ports("").unwrap_err();
    assert!(
        error.contains("made/ports.json: the state file cannot be read: "),
        "{error}"
    );
}

#[test]
fn contradictions_name_both_sides() {
    let fixture = Fixture::new();
    for (saved, more, complaint) in [
        (
            vec![port(1, "vm1", "vm3")],
            THIRD,
            "server.toml:17: port 3 contradicts port 1 of",
        ),
        (
            vec![port(1, "vm1", "vm3")],
            THIRD,
            "both use interface vm3 of hypervisor",
        ),
        (vec![port(1, "vm3", "x")], THIRD, "both are named \"vm3\""),
        (
            vec![port(1, "a", "x"), port(1, "b", "y")],
            "",
            "port 1 contradicts port 1: both have the same number",
        ),
        (
            vec![PortConfig {
                switch: "gone".into(),
                ..port(1, "a", "x")
            }],
            "",
            "port 1: unknown switch \"gone\" in server.toml",
        ),
    ] {
        fixture.save(&saved);
        let error = fixture.ports(more).unwrap_err();
        assert!(
            error.contains(complaint) && error.contains("made/ports.json"),
            "{error}"
        );
    }
}

fn submit(saver: &Saver, ports: Option<(u64, Vec<PortConfig>)>) -> oneshot::Receiver<Reply> {
    let (reply, answer) = oneshot::channel();
    let answers = vec![(reply, Ok(crate::events::Answer::Nothing))];
    saver.submit(Job { ports, answers });
    answer
}

#[tokio::test]
async fn answers_wait_for_the_disk_and_tell_when_it_fails() {
    let fixture = Fixture::new();
    let (saver, task) = Saver::new(StateFile::new(&fixture.config("")).unwrap());
    let task = tokio::spawn(task);
    let saved = submit(&saver, Some((7, vec![port(1, "vm1", "vm1")])));
    saved.await.unwrap().unwrap();
    assert_eq!(saver.saved(), 7);
    assert_eq!(fixture.ports("").unwrap(), ["1 vm1 vm1"]);

    fs::remove_dir_all(fixture.path().parent().unwrap()).unwrap();
    fs::write(fixture.path().parent().unwrap(), "in the way").unwrap();
    let problem = submit(&saver, Some((8, vec![])))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!((problem.code, saver.saved()), ("state-not-saved", 7));
    let said = "made/ports.json: cannot be written: ";
    assert!(problem.detail.contains(said), "{}", problem.detail);
    submit(&saver, None).await.unwrap().unwrap();
    drop(saver);
    task.await.unwrap();
}

#[tokio::test]
async fn of_changes_that_wait_for_the_disk_the_newest_is_kept() {
    let fixture = Fixture::new();
    let (mut saver, task) = Saver::new(StateFile::new(&fixture.config("")).unwrap());
    for revision in 1..100 {
        drop(submit(&saver, Some((revision, vec![]))));
        drop(submit(&saver, None));
    }
    let waiting = [
        submit(&saver, Some((100, vec![port(1, "vm1", "old")]))),
        submit(&saver, None),
        submit(&saver, Some((101, vec![port(1, "vm1", "new")]))),
    ];
    let owed = |pending: &Pending| pending.answers.len() + pending.others.len();
    let owed = owed(&lock(&saver.pending));
    assert_eq!(owed, waiting.len(), "answers to nobody are kept");
    let task = tokio::spawn(task);
    saver.saved_more().await;
    assert_eq!(saver.saved(), 101);
    for answer in waiting {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(fixture.ports("").unwrap(), ["1 vm1 new"]);
    drop(saver);
    task.await.unwrap();
}
