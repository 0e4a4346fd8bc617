#include "comm/threads/world.h"

#include <thread>

#include "comm/sequence.h"
#include "comm/threads/hall.h"

namespace lockstep {

namespace threads {
namespace {

// A rank's side of a meeting. Of a rank that computes in a stream also where that stream stood, and what it waits for.
class Joined final : public Pending {
 public:
  Joined(Hall& hall, int rank) : hall_(hall), rank_(rank) {}
  ~Joined() override {
    if (!meeting_) return;
    carried_ = hall_.give_up(*meeting_, rank_);
    try {
      order();  // the tensors may be put to other use in the rank's stream, while the device is at them
    } catch (const std::exception&) {  // a device that takes no more work: there is nothing to order
    }
  }

  void come(Group& group, const Message& message, std::uint64_t sequence, Stream* compute) {
    seconds_ = message.deadline > 0 ? message.deadline : hall_.deadline();
    compute_ = compute;
    if (compute_) {
      ready_ = compute_->make_event();
      compute_->record(*ready_);
    }
    meeting_ = hall_.arrive(group, rank_, {message, sequence, ready_.get()}, failure_);
  }

  bool done() override {
    if (meeting_ && !hall_.ask(*meeting_, rank_, deadline())) return false;
    Event* carried = meeting_ ? meeting_->carried.get() : carried_.get();
    return !carried || carried->done();
  }

  void wait() override {
    if (meeting_) {
      hall_.wait(*meeting_, rank_, deadline());
      carried_ = meeting_->carried;
      if (const auto failure = hall_.let_go(*std::exchange(meeting_, nullptr), rank_)) failure_ = *failure;
      order();
    }
    if (!failure_.what.empty()) throw CommError(failure_.what, failure_.secondary);
  }

  std::string waits_for() override { return meeting_ ? hall_.missing(*meeting_) : ""; }

 private:
  Clock::time_point deadline() {
    if (!deadline_)
      deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
    return *deadline_;
  }

  void order() {
    if (carried_) compute_->wait(*carried_);
  }

  Hall& hall_;
  int rank_;
  Meeting* meeting_ = nullptr;  // null when it is over
  Failure failure_;
  double seconds_ = 0;
  std::optional<Clock::time_point> deadline_;
  Stream* compute_ = nullptr;
  std::unique_ptr<Event> ready_;
  std::shared_ptr<Event> carried_;
};

class Member final : public Communicator {
 public:
  Member(Hall& hall, Group& group, int rank, Stream* compute = nullptr)
      : Communicator(rank, static_cast<int>(group.members.size()), group.name,
                     compute ? compute->device() : Device::cpu),
        hall_(hall),
        group_(&group),
        compute_(compute) {
    hall_.join(group, rank);
    if (compute_) hall_.carry_on(group, device());
  }
  // Takes the place of one that has none of a stream.
  Member(Member& from, Stream& compute)
      : Communicator(from.rank(), from.size(), from.name(), compute.device()),
        hall_(from.hall_),
        group_(from.group_),
        compute_(&compute),
        sequence_(from.sequence_) {
    hall_.carry_on(*group_, device());
    from.group_ = nullptr;
  }
  ~Member() override {
    if (group_) hall_.leave(*group_, rank());
  }

  Started start(const Message& message) override {
    check_message(message, rank(), size(), device());
    if (size() == 1) return start_alone(message);
    auto joined = std::make_unique<Joined>(hall_, rank());
    joined->come(*group_, message, sequence_.next(message), compute_);
    return joined;
  }

  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    const int color = place(rank()).color;
    const std::vector<int> members = members_of(rank(), size(), place);
    Group& part = hall_.divide(*group_, rank(), color, members, name);
    if (color < 0) return nullptr;
    const auto mine = std::find(members.begin(), members.end(), rank()) - members.begin();
    return std::make_unique<Member>(hall_, part, static_cast<int>(mine), compute_);
  }

 private:
  Started start_alone(const Message& message) {
    const Plan plan({&message, 1});
    if (compute_)  // in the rank's own order: nobody else has a part in it
      for (const Plan::Copy& copy : plan.copies())
        for (char* to : copy.to) copy_later(to, copy.from, copy.bytes, *compute_);
    else
      for (std::int64_t piece = 0; piece < plan.pieces(); ++piece) plan.run(piece);
    return std::make_unique<NothingPending>();
  }

  Hall& hall_;
  Group* group_;
  Stream* compute_;  // null: computes inline
  Sequence sequence_;
};

}  // namespace
}  // namespace threads

ThreadsWorld::ThreadsWorld(int ranks, ThreadsOptions options) {
  LOCKSTEP_CHECK(ranks >= 1 && ranks <= kMostSummands, "{} ranks as threads, 1 to {} are supported", ranks,
                 kMostSummands);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  hall_ = std::make_unique<threads::Hall>(ranks, options.deadline_seconds,
                                          std::max(1, options.helpers > 0 ? options.helpers : cores));
}

ThreadsWorld::~ThreadsWorld() = default;

std::unique_ptr<Communicator> ThreadsWorld::communicator(int rank) {
  LOCKSTEP_CHECK(rank >= 0 && rank < static_cast<int>(hall_->world().members.size()), "no rank {}", rank);
  return std::make_unique<threads::Member>(*hall_, hall_->world(), rank);
}

std::unique_ptr<Communicator> on_stream(std::unique_ptr<Communicator> comm, Stream& compute) {
  auto* member = dynamic_cast<threads::Member*>(comm.get());
  LOCKSTEP_CHECK(member, "'{}' is not a group of thread ranks as its world gave it", comm->name());
  return std::make_unique<threads::Member>(*member, compute);
}

void ThreadsWorld::end(int rank, const std::string& how) { hall_->end(rank, how); }

void ThreadsWorld::abort(const std::string& reason) { hall_->abort(reason); }

}  // namespace lockstep
