//! Reports of the [bytes beyond a hole](crate::pieces) to their sender.

use crate::{
    pass::Pass,
    record::{Connection, Half},
};

impl Half {
    /// Owes the sender a duplicate ACK. Sent at once, it would repeat an older acknowledgement, and the sender would take other bytes for lost.
    fn owe(&mut self) {
        self.owed = self.owed.saturating_add(1);
    }

    /// Returns the ACKs to send now: none as long as the receiver has not acknowledged everything before the hole.
    fn due(&mut self) -> u8 {
        if self.acked == self.top {
            std::mem::take(&mut self.owed)
        } else {
            0
        }
    }
}

impl Pass<'_> {
    /// Reports bytes beyond a hole to the client.
    pub(crate) fn report_requests(&mut self, connection: &mut Connection) {
        connection.requests.owe();
        self.pay_client(connection);
    }

    /// Reports bytes beyond a hole to the backend. The client learns now what the backend has acknowledged with them.
    pub(crate) fn report_answers(&mut self, connection: &mut Connection) {
        connection.answers.owe();
        self.pay_leg(connection);
        if connection.requests.acknowledgement() != connection.requests.told {
            self.acknowledge_client(connection);
        }
    }

    /// Sends the ACKs owed to the client.
    pub(crate) fn pay_client(&mut self, connection: &mut Connection) {
        for _ in 0..connection.requests.due() {
            self.acknowledge_client(connection);
        }
    }

    /// Sends the ACKs owed to the backend.
    pub(crate) fn pay_leg(&mut self, connection: &mut Connection) {
        for _ in 0..connection.answers.due() {
            self.acknowledge_leg(connection);
        }
    }
}
