"""The optional index of keys: maintained, or deleted if disabled."""

from __future__ import annotations

import shutil

from broker_core.broker.settings import BrokerSettings
from broker_core.errors import StoreError
from broker_core.store.message_store import MessageStore


class KeyLookup:
    """``index`` is None with ``key_index: false``."""

    def __init__(self, store: MessageStore, settings: BrokerSettings) -> None:
        """Open or delete the index; blocks. Raise StoreError if its files cannot be used.

        *store* is not started yet.
        """
        try:
            self.index = store.key_indexer() if settings.key_index else None
            if self.index is None and store.key_folder.exists():
                shutil.rmtree(store.key_folder)  # outdated as soon as a message is stored
        except OSError as error:
            where = error.filename or store.key_folder
            raise StoreError(f"{where} cannot be used: {error.strerror}") from error

    def start(self) -> None:
        """Follow the log from now on."""
        if self.index is not None:
            self.index.start()

    async def close(self) -> None:
        """Stop; before the store is closed."""
        if self.index is not None:
            await self.index.close()
