#include "plan/stage_script.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>

#include "comm/sequence.h"
#include "comm/traffic.h"
#include "plan/work_sums.h"
#include "train/phase_counter.h"
#include "train/training_run.h"

namespace lockstep {

GroupSpan span_of(const std::vector<int>& members, int rank, MeshAxis axis, const MachineSpec& machine) {
  GroupSpan span{.axis = axis, .ranks = static_cast<int>(members.size()), .nodes = 0, .on_node = 0};
  const std::int64_t home = machine.node_of(rank);
  std::vector<std::int64_t> nodes;
  for (const int member : members) {
    const std::int64_t node = machine.node_of(member);
    span.on_node += node == home;
    if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
  }
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  span.nodes = static_cast<int>(nodes.size());
  if (machine.spine_nodes > 0 && machine.oversubscription > 1) {
    span.over_spine = nodes.front() / machine.spine_nodes != nodes.back() / machine.spine_nodes;
    if (span.over_spine)
      span.on_spine = static_cast<int>(std::ranges::count_if(
          members, [&](int m) { return machine.node_of(m) / machine.spine_nodes == home / machine.spine_nodes; }));
  }
  return span;
}

namespace {

// What all stages share: messages and phases that are the same are kept once.
class SharedScript {
 public:
  explicit SharedScript(WorldScript& script) : script_(script) {}
  int message(const StageMessage& message) {
    const auto [at, first] = messages_.try_emplace(message, static_cast<int>(script_.messages.size()));
    if (first) script_.messages.push_back(message);
    return at->second;
  }
  // Phases of units that do the same, and take the same to a millionth: prices are added up in another order.
  int phase(PhaseScript phase) {
    for (std::size_t i = 0; i < script_.phases.size(); ++i)
      if (alike(script_.phases[i], phase)) return static_cast<int>(i);
    script_.phases.push_back(std::move(phase));
    return static_cast<int>(script_.phases.size()) - 1;
  }

 private:
  static bool alike(const PhaseScript& a, const PhaseScript& b) {
    if (a.pieces.size() != b.pieces.size() || a.work.flops != b.work.flops || a.work.calls != b.work.calls)
      return false;
    for (std::size_t i = 0; i < a.pieces.size(); ++i) {
      const StagePiece &x = a.pieces[i], &y = b.pieces[i];
      if (x.kind != y.kind || x.index != y.index || x.number != y.number ||
          std::abs(x.seconds - y.seconds) > 1e-6 * x.seconds)
        return false;
    }
    return true;
  }

  WorldScript& script_;
  std::map<StageMessage, int> messages_;
};

// One rank's pieces as they come, and the phases that it has recorded.
class StageNotes final : public StepWatch, public PhaseCounter {
 public:
  using Kind = StagePiece::Kind;
  explicit StageNotes(SharedScript& shared) : shared_(shared) {}

  void begin(meta::Stream& stream) {
    stream_ = &stream;
    counted_ = stream.work();
  }
  void add(StagePiece piece) {
    if (!stream_) return;
    add_work();
    piece.action = action_;
    list().push_back(piece);
  }
  // Before the steps nothing is written down: -1.
  int starts(const StageMessage& message) {
    if (!stream_) return -1;
    int& next = in_phase_ ? phase_messages_ : messages_;
    add({.kind = Kind::start, .index = shared_.message(message), .number = next});
    return next++;
  }
  void waits(int number) {
    if (number >= 0) add({.kind = Kind::wait, .number = number});
  }
  bool in_phase() const { return in_phase_; }

  void comes_to(std::size_t index) override { action_ = static_cast<int>(index); }
  void runs(const Action&) override { add({.kind = Kind::action_runs}); }
  void is_done_with(const Action&) override {
    add({.kind = Kind::action_done});
    action_ = -1;
  }

  bool has_counted(const Action& phase, bool accumulates) override {
    add_work();
    const auto known = known_.find({phase.kind, phase.unit, accumulates});
    if (known != known_.end()) {
      pieces_.push_back({.kind = Kind::phase, .action = action_, .index = known->second});
      return true;
    }
    in_phase_ = true;
    phase_messages_ = 0;
    before_ = stream_->work();
    return false;
  }
  void has_run(const Action& phase, bool accumulates) override {
    add_work();
    in_phase_ = false;
    for (StagePiece& piece : phase_pieces_) piece.action = -1;
    const int index = shared_.phase({.pieces = std::exchange(phase_pieces_, {}), .work = stream_->work() - before_});
    known_.emplace(Key{phase.kind, phase.unit, accumulates}, index);
    pieces_.push_back({.kind = Kind::phase, .action = action_, .index = index});
  }

  StageScript take(RankStep step) {
    return {.pieces = std::move(pieces_), .messages = messages_, .step = std::move(step)};
  }

 private:
  using Key = std::tuple<ActionKind, int, bool>;
  std::vector<StagePiece>& list() { return in_phase_ ? phase_pieces_ : pieces_; }
  void add_work() {
    if (!stream_ || stream_->work() == counted_) return;
    list().push_back({.kind = Kind::work, .action = action_, .seconds = stream_->work().seconds - counted_.seconds});
    counted_ = stream_->work();
  }

  SharedScript& shared_;
  meta::Stream* stream_ = nullptr;
  meta::Work counted_, before_;
  int action_ = -1;
  int messages_ = 0, phase_messages_ = 0;
  bool in_phase_ = false;
  std::vector<StagePiece> pieces_, phase_pieces_;
  std::map<Key, int> known_;
};

// A message of a phase is waited for in it; the wait of another one, when the pending is asked later, is a wait of the
// stage's own list.
class StagePending final : public Pending {
 public:
  StagePending(StageNotes& notes, int number) : notes_(notes), number_(number), of_phase_(notes.in_phase()) {}
  bool done() override { return true; }
  void wait() override {
    LOCKSTEP_CHECK(number_ < 0 || of_phase_ == notes_.in_phase(), "a message of a phase is waited for outside it");
    notes_.waits(number_);
  }

 private:
  StageNotes& notes_;
  int number_;
  bool of_phase_;
};

// Which of the servers of its weights it is.
int server_of(int rank, const LayoutSpec& l) {
  return static_cast<int>((rank / l.line() - l.dp) * l.cp + rank / l.tp % l.cp);
}

class StageCommunicator final : public Communicator {
 public:
  struct Place {
    const LayoutSpec& layout;
    const MachineSpec& machine;
    int world_rank;
  };
  StageCommunicator(int rank, std::vector<int> members, const std::string& name, const Place& of, StageNotes& notes)
      : Communicator(rank, static_cast<int>(members.size()), name, Device::meta),
        of_(of),
        members_(std::move(members)),
        span_(span_of(members_, of.world_rank, axis_of(name, of.layout), of.machine)),
        notes_(notes) {
    if (of.layout.servers == 0 || span_.axis != MeshAxis::dp) return;
    const bool computes = std::ranges::any_of(members_, [&](int m) { return !of.layout.serves(m); });
    if (!of.layout.serves(members_.back())) return;
    among_ = name == "server" ? StageMessage::Among::link
             : computes       ? StageMessage::Among::all
                              : StageMessage::Among::servers;
    if (name == "server") server_ = server_of(members_.back(), of.layout);
  }

  Started start(const Message& message) override {
    check_message(message, rank(), size(), Device::meta);
    if (size() == 1) return std::make_unique<NothingPending>();
    const DType dtype = dtype_of_message(message);
    const std::int64_t count = count_of(message, size());
    const Traffic traffic = traffic_of(message, rank(), size());
    StageMessage noted{.op = message.op,
                       .algorithm = message.algorithm,
                       .group = span_,
                       .sent = traffic.sent * size_of(dtype),
                       .steps = traffic.steps,
                       .number = is_number(dtype, count)};
    if (point_to_point(message.op)) {
      const int peer = members_[static_cast<std::size_t>(message.peer)];
      noted.group = span_of({std::min(peer, of_.world_rank), std::max(peer, of_.world_rank)}, of_.world_rank,
                            span_.axis, of_.machine);
      noted.sent = count * size_of(dtype);
      noted.steps = 1;
      if (const auto stage = of_.layout.stage(peer); stage != of_.layout.stage(of_.world_rank))
        noted.peer = static_cast<int>(stage);
    } else if (among_ != StageMessage::Among::computing) {
      // A rank that computes and a server note the same but for what each sends.
      noted.group = span_of(members_, members_.back(), span_.axis, of_.machine);
      noted.among = among_;
      noted.server = server_;
      if (has_root(message.op)) {
        const Traffic root = traffic_of(message, message.peer, size());
        noted.busiest = std::max(root.sent, root.received) * size_of(dtype);
      }
    } else if (reduces(message.op) && message.algorithm == Algorithm::canonical) {
      noted.summed = (count + count / size()) * size_of(dtype);
    }
    return std::make_unique<StagePending>(notes_, notes_.starts(noted));
  }

  std::unique_ptr<Communicator> split(const std::function<lockstep::Place(int)>& place,
                                      const std::string& name) override {
    if (place(rank()).color < 0) return nullptr;
    std::vector<int> own = members_of(rank(), size(), place);
    const auto mine = std::ranges::find(own, rank()) - own.begin();
    for (int& member : own) member = members_[static_cast<std::size_t>(member)];
    return std::make_unique<StageCommunicator>(static_cast<int>(mine), std::move(own), name, of_, notes_);
  }

 private:
  Place of_;
  std::vector<int> members_;  // by their ranks in the world
  GroupSpan span_;
  StageMessage::Among among_ = StageMessage::Among::computing;
  int server_ = 0;
  StageNotes& notes_;
};

// The run of this rank, on meta, for two steps.
class StageRecording {
 public:
  StageRecording(const RunSpec& spec, const MachineSpec& machine, const meta::KernelPricer& prices, const RunData& data,
                 StepKind kind)
      : spec_(never_synchronized(spec)),
        machine_(machine),
        prices_(prices),
        data_(data),
        kind_(kind),
        world_(static_cast<std::size_t>(spec.layout.ranks())) {
    std::iota(world_.begin(), world_.end(), 0);
  }

  StageScript of(int rank, SharedScript& shared) {
    StageNotes notes(shared);
    StageCommunicator ranks(rank, world_, "world", {spec_.layout, machine_, rank}, notes);
    TrainingRun run(spec_, Device::meta, "", {.ranks = &ranks, .data = &data_, .lists = lists_, .model = model_});
    lists_ = run.replica().rank_step().lists;
    model_ = run.replica().shared_model();
    run.init_weights();
    meta::Stream& stream = meta::Stream::of(run.stream());
    stream.price_by(&prices_);
    notes.begin(stream);
    run.replica().show(&notes);
    run.replica().count_by(&notes);
    for (int step = 0; step < 2; ++step) {
      notes.add({.kind = StagePiece::Kind::step_begins});
      run.step(0, spec_.optimizer.learning_rate);
      if (step == 1 && kind_ == StepKind::synchronizing) run.replica().synchronize();
      notes.add({.kind = StagePiece::Kind::step_ends});
    }
    run.replica().show(nullptr);
    run.replica().count_by(nullptr);
    stream.price_by(nullptr);
    return notes.take(run.replica().rank_step());
  }

 private:
  RunSpec spec_;
  const MachineSpec& machine_;
  const meta::KernelPricer& prices_;
  const RunData& data_;
  StepKind kind_;
  std::vector<int> world_;
  std::shared_ptr<const StepLists> lists_;
  std::shared_ptr<const Model> model_;
};

}  // namespace

WorldScript world_script(const RunSpec& spec, const MachineSpec& machine, const meta::KernelPricer& prices,
                         const RunData& data, StepKind kind) {
  WorldScript script;
  SharedScript shared(script);
  const LayoutSpec& layout = spec.layout;
  StageRecording recording(spec, machine, prices, data, kind);
  // In plain order the last rank of a sample attends to most: the others wait for it.
  const std::int64_t of_sample = layout.cp_order == CpOrder::plain ? layout.cp - 1 : 0;
  for (std::int64_t stage = 0; stage < layout.pp; ++stage)
    script.stages.push_back(recording.of(static_cast<int>((stage * layout.cp + of_sample) * layout.tp), shared));
  if (layout.servers == 0) return script;
  script.servers_each = static_cast<int>(layout.servers / (layout.pp * layout.tp));
  for (std::int64_t stage = 0; stage < layout.pp; ++stage)
    script.servers.push_back(
        recording.of(static_cast<int>(layout.dp * layout.line() + stage * layout.cp * layout.tp), shared));
  return script;
}

}  // namespace lockstep
