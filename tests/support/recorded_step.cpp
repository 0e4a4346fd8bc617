#include "support/recorded_step.h"

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"

namespace lockstep::tests {

namespace {

Sent sent_by(const CommLog& log) {
  Sent sent;
  for (const auto& [key, total] : log.totals()) {  // of every group
    auto& counts = sent[{std::get<CommOp>(key), std::get<DType>(key)}];
    counts[0] += total.calls;
    counts[1] += total.sent;
    counts[2] += total.received;
    counts[3] += total.messages;
  }
  return sent;
}

// One step of one rank, without what set-up sends.
Recorded one_step(const Replica::Options& o, Communicator& ranks, CommLog& log, Memory& memory, Stream& stream) {
  Replica replica(o, {ranks, ranks}, memory, stream);
  replica.init_weights();
  const Sent before = sent_by(log);
  const TokenBatch batch = random_batch(o, 1);
  const auto given = [&, share = replica.given()](const std::vector<std::int32_t>& whole) {
    return std::span(whole).subspan(static_cast<std::size_t>(share.first * o.T),
                                    static_cast<std::size_t>(share.count * o.T));
  };
  replica.step(given(batch.tokens), given(batch.targets));
  Recorded recorded{.sent = sent_by(log)};
  for (auto& [key, counts] : recorded.sent)
    if (const auto at = before.find(key); at != before.end())
      for (std::size_t i = 0; i < counts.size(); ++i) counts[i] -= at->second[i];
  for (int u = 0; u < replica.model().units(); ++u) recorded.owned.push_back(replica.model().unit(u).layout().owned());
  for (const std::int64_t elements : recorded.owned) recorded.stored += elements;
  return recorded;
}

}  // namespace

std::vector<Recorded> on_threads(const Replica::Options& o) {
  std::vector<Recorded> all(static_cast<std::size_t>(o.layout.ranks()));
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    CommLog log;
    Recorder recorded(std::move(group), log);
    CpuDevice cpu;
    all[rank] = one_step(o, recorded, log, cpu.memory(), cpu.stream());
  });
  return all;
}

Recorded on_meta(const Replica::Options& o, int rank) {
  CommLog log;
  Recorder recorded(std::make_unique<meta::Communicator>(rank, static_cast<int>(o.layout.ranks())), log);
  MetaDevice meta;
  return one_step(o, recorded, log, meta.memory(), meta.stream());
}

}  // namespace lockstep::tests
