//! A network function that returns every packet as it is.

use nf_runtime::{state::StateBuilder, Batch, Context, NetworkFunction, Refusal};

/// The least that a network function can do.
pub struct Bare;

impl NetworkFunction for Bare {
    const KIND: &'static str = "bare";
    const SUMMARY: &'static str = "returns every packet";
    const SCHEMA: u32 = 1;
    type Config = ();

    fn create((): (), state: &mut StateBuilder) -> Result<Self, Refusal> {
        state.region("unused", "u64", 1)?;
        Ok(Self)
    }

    fn process(&self, batch: &mut Batch, _: &Context<'_>) {
        batch
            .packets_mut()
            .iter_mut()
            .for_each(|packet| packet.send(0));
    }

    fn configure(&self, (): ()) -> Result<(), Refusal> {
        Ok(())
    }

    fn wants_tick(&self) -> bool {
        false
    }
}
