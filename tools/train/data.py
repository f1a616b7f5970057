"""Training windows from the packed tokens. Stateless: a batch depends on the seed and the step, so
resuming is exact.
"""

import torch


class Windows:
    def __init__(self, ids, chat_starts, length, batch, seed=0, chat_share=1 / 16):
        self.ids, self.length, self.batch, self.seed = ids, length, batch, seed
        last = len(ids) - length - 1
        self.count = last // length
        self.chats = chat_starts[chat_starts < last]
        self.chat_rows = int(batch * chat_share) if len(self.chats) else 0
        self.epoch, self.order = -1, None

    def starts_of(self, epoch):
        """All windows of one epoch in random order; each epoch cuts the text at another offset."""
        if epoch != self.epoch:
            g = torch.Generator().manual_seed(self.seed * 1000003 + epoch)
            offset = torch.randint(self.length, (1,), generator=g)
            self.order = (torch.randperm(self.count - 1, generator=g) * self.length + offset).to(
                self.ids.device
            )
            self.epoch = epoch
        return self.order

    def __call__(self, step):
        """int64 [batch, length]. The first rows begin where a conversation does, as chats do when
        they are served.
        """
        rows, at, need = [], step * self.batch, self.batch
        while need:
            epoch, i = divmod(at, self.count - 1)
            rows.append(self.starts_of(epoch)[i : i + need])
            at, need = at + len(rows[-1]), need - len(rows[-1])
        starts = torch.cat(rows)
        if self.chat_rows:
            g = torch.Generator().manual_seed(self.seed * 7919 + step)
            pick = torch.randint(len(self.chats), (self.chat_rows,), generator=g).to(starts.device)
            starts[: self.chat_rows] = self.chats[pick]
        return self.ids[
            starts.unsqueeze(-1) + torch.arange(self.length, device=starts.device)
        ].long()
