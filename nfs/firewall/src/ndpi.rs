//! The inspector: nDPI in a process of its own.

use nf_dpi::{find_program, Inspector, Packet, Settings, State};

use crate::{
    application::{Catalogue, Known},
    config::Inspecting,
    inspection::{Answer, Inspection, Refused, Request},
};

/// nDPI.
pub struct Ndpi(Inspector);

fn request(request: Request<'_>) -> nf_dpi::Request<'_> {
    match request {
        Request::Packet {
            flow,
            sequence,
            time_ms,
            bytes,
        } => nf_dpi::Request::Packet(Packet {
            flow,
            sequence,
            time_ms,
            bytes,
        }),
        Request::GiveUp { flow, sequence } => nf_dpi::Request::GiveUp { flow, sequence },
    }
}

fn refused(refused: nf_dpi::Refused) -> Refused {
    use nf_dpi::Refused::{Down, Full, Quarantined, Replay, Restarted, TooLong};
    match refused {
        Full | Replay | Restarted | Down => Refused::Later,
        Quarantined | TooLong => Refused::Never,
    }
}

fn answer(answer: &nf_dpi::Answer) -> Answer {
    Answer {
        flow: answer.flow,
        sequence: answer.sequence,
        is_final: answer.state == State::Final,
        known: Known {
            master: answer.protocol.master,
            application: answer.protocol.application,
            category: answer.category,
            host: String::from_utf8_lossy(answer.host.as_bytes()).into_owned(),
            ja3: answer.ja3,
        },
    }
}

impl Inspection for Ndpi {
    fn start(settings: &Inspecting, wake: impl Fn() + Send + 'static) -> Result<Self, String> {
        let program = match &settings.helper {
            Some(program) => program.clone(),
            None => find_program().map_err(|error| error.to_string())?,
        };
        let started = Inspector::start(Settings::new(program), wake).map(Self);
        started.map_err(|error| match settings.helper {
            Some(_) => format!("{error}; expected the file of the program nf-dpi; without this key, it is looked for beside nf, in ../libexec/nf, and on PATH"),
            None => error,
        })
    }

    fn catalogue(&self) -> Catalogue {
        let names = self.0.catalogue();
        Catalogue {
            protocols: names.protocols().to_vec(),
            categories: names.categories().to_vec(),
        }
    }

    fn generation(&self) -> u64 {
        self.0.generation()
    }

    fn submit(&self, wanted: Request<'_>) -> Result<(), Refused> {
        self.0.submit(request(wanted)).map_err(refused)
    }

    fn replay(&self, generation: u64, wanted: Request<'_>) -> Result<(), Refused> {
        self.0.replay(generation, request(wanted)).map_err(refused)
    }

    fn replayed(&self, generation: u64) -> bool {
        self.0.replayed(generation)
    }

    fn forget(&self, flow: u64) {
        self.0.forget(flow);
    }

    fn poll(&self, each: &mut dyn FnMut(Answer)) -> usize {
        self.0.poll(|one| each(answer(one)))
    }
}
