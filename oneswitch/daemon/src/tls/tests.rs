use std::path::PathBuf;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a key and a certificate that `issuer` signed, to be used with the authority `trusted`.
fn identity(
    folder: &Path,
    name: &str,
    issuer: &CertifiedIssuer<'_, KeyPair>,
    trusted: &CertifiedIssuer<'_, KeyPair>,
) -> TlsFiles {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![format!("{name} has no fitting name")]).unwrap();
    let certificate = certificate.signed_by(&key, issuer).unwrap();
    let write = |kind: &str, text: String| -> PathBuf {
        let path = folder.join(format!("{name}-{kind}.pem"));
        fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        private_key: write("privkey", key.serialize_pem()),
        certificate: write("cert", certificate.pem()),
        ca_certificate: write("cacert", trusted.pem()),
    }
}

/// Connects the two over TCP and sends a word each way.
async fn meet(client: &TlsFiles, server: &TlsFiles) -> io::Result<()> {
    let (client, server) = (Tls::load(client).unwrap(), Tls::load(server).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = async {
        let mut stream = server.accept(listener.accept().await?.0).await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.flush().await
    };
    let asking = async {
        let mut stream = client
            .connect("127.0.0.1", TcpStream::connect(address).await?)
            .await?;
        stream.write_all(b"word").await?;
        stream.flush().await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        assert_eq!(&word, b"word");
        Ok(())
    };
    let (served, asked): (io::Result<()>, io::Result<()>) = tokio::join!(serving, asking);
    served.and(asked)
}

#[tokio::test]
async fn both_sides_trust_whom_the_authority_signed_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let ours = authority("ours");
    let (a, b) = (
        identity(folder.path(), "a", &ours, &ours),
        identity(folder.path(), "b", &ours, &ours),
    );
    meet(&a, &b).await.unwrap();
}

#[tokio::test]
async fn neither_side_trusts_a_stranger() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let known = identity(folder.path(), "known", &ours, &ours);
    let stranger = identity(folder.path(), "stranger", &theirs, &ours);
    let error = meet(&known, &stranger).await.unwrap_err();
    assert!(
        error.to_string().contains("UnknownCA") || error.to_string().contains("UnknownIssuer"),
        "{error}"
    );
    let error = meet(&stranger, &known).await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let ours = authority("ours");
    let good = identity(folder.path(), "good", &ours, &ours);
    let (key, certificate, ca) = (&good.private_key, &good.certificate, &good.ca_certificate);
    let other = identity(folder.path(), "other", &ours, &ours).private_key;
    let (empty, missing) = (
        &folder.path().join("empty.pem"),
        folder.path().join("missing.pem"),
    );
    fs::write(empty, "nothing here").unwrap();
    for ([private_key, certificate, ca_certificate], complaint) in [
        ([&missing, certificate, ca], "missing.pem: cannot be read"),
        (
            [empty, certificate, ca],
            "empty.pem: contains no private key in PEM",
        ),
        (
            [key, empty, ca],
            "empty.pem: contains no certificate in PEM",
        ),
        (
            [key, certificate, empty],
            "empty.pem: contains no certificate in PEM",
        ),
        ([&other, certificate, ca], "other-privkey.pem and"),
    ] {
        let files = TlsFiles {
            private_key: private_key.clone(),
            certificate: certificate.clone(),
            ca_certificate: ca_certificate.clone(),
        };
        let error = Tls::load(&files).err().unwrap();
        assert!(error.contains(complaint), "{error}");
    }
}

/// Uses the output of `ovs-pki`, if installed: a controller's and a switch's certificate, each of its own authority, as its manual
/// suggests.
#[tokio::test]
async fn certificates_of_ovs_pki_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let folder = folder.path();
        let done = Command::new("ovs-pki")
            .current_dir(folder)
            .arg(format!("--dir={}", folder.join("pki").display()))
            .arg(format!("--log={}", folder.join("log").display()))
            .args(arguments)
            .output();
        done.map(|output| {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            )
        })
    };
    if let Err(error) = run(&["init"]) {
        eprintln!("ovs-pki is not installed ({error}): nothing is tested here");
        return;
    }
    run(&["req+sign", "ctl", "controller"]).unwrap();
    run(&["req+sign", "sw", "switch"]).unwrap();
    let files = |name: &str, trusted: &str| TlsFiles {
        private_key: folder.path().join(format!("{name}-privkey.pem")),
        certificate: folder.path().join(format!("{name}-cert.pem")),
        ca_certificate: folder.path().join(format!("pki/{trusted}/cacert.pem")),
    };
    let (controller, switch) = (files("ctl", "switchca"), files("sw", "controllerca"));
    meet(&switch, &controller).await.unwrap();
    meet(&controller, &switch).await.unwrap();
    meet(&files("sw", "switchca"), &controller)
        .await
        .unwrap_err();
}
