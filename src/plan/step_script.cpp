#include "plan/step_script.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "comm/meta/communicator.h"
#include "comm/sequence.h"
#include "comm/traffic.h"
#include "plan/message_tally.h"
#include "plan/work_sums.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

std::int64_t bytes_of(const ConstTensor& t) { return t.none() ? 0 : t.bytes(); }

// The messages of all ranks: the n-th calls of two ranks on one channel belong to one message.
class MessageBook {
 public:
  // A group, or the link from one of its ranks to another, by the name that all its ranks use.
  using Channel = std::tuple<std::vector<int>, int, int>;

  int started(const Channel& channel, std::uint64_t sequence, const Message& message, const Communicator& group) {
    const int c = numbers_.try_emplace(channel, static_cast<int>(numbers_.size())).first->second;
    const auto [at, first] = places_.try_emplace({c, sequence}, static_cast<int>(messages_.size()));
    const DType dtype = dtype_of_message(message);
    if (first)
      messages_.push_back({.op = message.op,
                           .ranks = point_to_point(message.op) ? 2 : group.size(),
                           .channel = c,
                           .group = group.name(),
                           .number = is_number(dtype, count_of(message, group.size()))});
    ScriptMessage& all = messages_[static_cast<std::size_t>(at->second)];
    for (const Message& pair : pairs_of(message)) all.bytes += bytes_of(pair.in) + bytes_of(pair.out);
    all.sent = std::max(all.sent, traffic_of(message, group.rank(), group.size()).sent * size_of(dtype));
    return at->second;
  }
  std::vector<ScriptMessage> take() { return std::move(messages_); }

 private:
  std::map<Channel, int> numbers_;
  std::map<std::pair<int, std::uint64_t>, int> places_;
  std::vector<ScriptMessage> messages_;
};

// One rank's pieces as they come.
class Notes final : public StepWatch {
 public:
  using Kind = ScriptPiece::Kind;
  explicit Notes(MessageBook& book) : book_(book) {}

  void begin(meta::Stream& stream) {
    stream_ = &stream;
    counted_ = stream.work();
  }
  void add(Kind kind, int message = -1) {
    if (!stream_) return;
    if (const meta::Work now = stream_->work(); now != counted_) {
      pieces_.push_back({.kind = Kind::work, .action = action_, .work = now - counted_});
      counted_ = now;
    }
    pieces_.push_back({.kind = kind, .action = action_, .message = message});
  }
  // Before the steps nothing is written down.
  int starts(const MessageBook::Channel& channel, std::uint64_t sequence, const Message& message,
             const Communicator& group) {
    if (!stream_) return -1;
    const int number = book_.started(channel, sequence, message, group);
    add(Kind::start, number);
    if (message.op == CommOp::recv) return number;
    const Traffic traffic = traffic_of(message, group.rank(), group.size());
    pieces_.back().bytes = std::max(traffic.sent, traffic.received) * size_of(dtype_of_message(message));
    pieces_.back().steps = traffic.steps;
    return number;
  }
  void waits(int message) {
    if (message >= 0) add(Kind::wait, message);
  }
  std::vector<ScriptPiece> take() { return std::move(pieces_); }

  void comes_to(std::size_t index) override { action_ = static_cast<int>(index); }
  void runs(const Action&) override { add(Kind::action_runs); }
  void is_done_with(const Action&) override {
    add(Kind::action_done);
    action_ = -1;
  }

 private:
  MessageBook& book_;
  meta::Stream* stream_ = nullptr;
  meta::Work counted_;
  int action_ = -1;
  std::vector<ScriptPiece> pieces_;
};

class NotedPending final : public Pending {
 public:
  NotedPending(Notes& notes, int message) : notes_(notes), message_(message) {}
  bool done() override { return true; }
  void wait() override { notes_.waits(message_); }

 private:
  Notes& notes_;
  int message_;
};

// A communicator of meta whose calls are recorded. A group's name, the same on all its ranks, is its path: which split
// of which group, and which part of it.
class NotingCommunicator final : public Communicator {
 public:
  NotingCommunicator(int rank, int size, const std::string& name, std::vector<int> path, Notes& notes)
      : Communicator(rank, size, name, Device::meta), path_(std::move(path)), notes_(notes) {}

  Started start(const Message& message) override {
    check_message(message, rank(), size(), Device::meta);
    const std::uint64_t sequence = sequence_.next(message);
    if (size() == 1) return std::make_unique<NothingPending>();
    const int from = message.op == CommOp::send ? rank() : message.peer;
    const int to = message.op == CommOp::send ? message.peer : rank();
    const auto channel =
        point_to_point(message.op) ? MessageBook::Channel(path_, from, to) : MessageBook::Channel(path_, -1, -1);
    return std::make_unique<NotedPending>(notes_, notes_.starts(channel, sequence, message, *this));
  }

  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    ++splits_;
    const int color = place(rank()).color;
    if (color < 0) return nullptr;
    const std::vector<int> members = members_of(rank(), size(), place);
    const auto mine = std::ranges::find(members, rank());
    std::vector<int> path = path_;
    path.insert(path.end(), {splits_, color});
    return std::make_unique<NotingCommunicator>(static_cast<int>(mine - members.begin()),
                                                static_cast<int>(members.size()), name, std::move(path), notes_);
  }

 private:
  std::vector<int> path_;
  Notes& notes_;
  Sequence sequence_;
  int splits_ = 0;
};

RankScript rank_script(const RunSpec& spec, int rank, const RunData& data, const meta::KernelPricer* prices,
                       StepKind kind, MessageBook& book) {
  Notes notes(book);
  NotingCommunicator ranks(rank, static_cast<int>(spec.layout.ranks()), "world", {}, notes);
  TrainingRun run(spec, Device::meta, "", {.ranks = &ranks, .data = &data});
  run.init_weights();
  meta::Stream& stream = meta::Stream::of(run.stream());
  stream.price_by(prices);
  notes.begin(stream);
  run.replica().show(&notes);
  for (int step = 0; step < 2; ++step) {
    notes.add(ScriptPiece::Kind::step_begins);
    run.step(0, spec.optimizer.learning_rate);
    if (step == 1 && kind == StepKind::synchronizing) run.replica().synchronize();
    notes.add(ScriptPiece::Kind::step_ends);
  }
  run.replica().show(nullptr);
  return {.pieces = notes.take(), .step = run.replica().rank_step(), .samples = run.replica().given().count};
}

}  // namespace

StepScript step_script(const RunSpec& run, const RunData& data, const meta::KernelPricer* prices, StepKind kind) {
  MessageBook book;
  StepScript script;
  const RunSpec spec = never_synchronized(run);
  for (int rank = 0; rank < spec.layout.ranks(); ++rank)
    script.ranks.push_back(rank_script(spec, rank, data, prices, kind, book));
  script.messages = book.take();
  return script;
}

}  // namespace lockstep
