#include "comm/threads/world.h"

#include <thread>

#include "comm/sequence.h"
#include "comm/threads/hall.h"

namespace lockstep {

namespace threads {
namespace {

class Joined final : public Pending {
 public:
  Joined(Hall& hall, Meeting* meeting, int rank, Failure failure)
      : hall_(hall), meeting_(meeting), rank_(rank), failure_(std::move(failure)) {}
  ~Joined() override {
    if (meeting_) hall_.give_up(*meeting_, rank_);
  }

  bool done() override { return !meeting_ || hall_.ask(*meeting_, deadline()); }

  void wait() override {
    if (meeting_) {
      hall_.wait(*meeting_, deadline());
      if (const auto failure = hall_.let_go(*std::exchange(meeting_, nullptr), rank_)) failure_ = *failure;
    }
    if (!failure_.what.empty()) throw CommError(failure_.what, failure_.secondary);
  }

  std::string waits_for() override { return meeting_ ? hall_.missing(*meeting_) : ""; }

 private:
  Clock::time_point deadline() {
    if (!deadline_)
      deadline_ =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(hall_.deadline()));
    return *deadline_;
  }

  Hall& hall_;
  Meeting* meeting_;  // null when it is over
  int rank_;
  Failure failure_;
  std::optional<Clock::time_point> deadline_;
};

class Member final : public Communicator {
 public:
  Member(Hall& hall, Group& group, int rank)
      : Communicator(rank, static_cast<int>(group.members.size()), group.name, Device::cpu),
        hall_(hall),
        group_(group) {
    hall_.join(group_, rank);
  }
  ~Member() override { hall_.leave(group_, rank()); }

  Started start(const Message& message) override {
    check_message(message, rank(), size(), Device::cpu);
    if (size() == 1) {
      const Plan plan({&message, 1});
      for (std::int64_t piece = 0; piece < plan.pieces(); ++piece) plan.run(piece);
      return std::make_unique<NothingPending>();
    }
    Failure failure;
    Meeting* meeting = hall_.arrive(group_, rank(), message, sequence_.next(message), failure);
    return std::make_unique<Joined>(hall_, meeting, rank(), std::move(failure));
  }

  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    const int color = place(rank()).color;
    const std::vector<int> members = members_of(rank(), size(), place);
    Group& part = hall_.divide(group_, rank(), color, members, name);
    if (color < 0) return nullptr;
    const auto mine = std::find(members.begin(), members.end(), rank()) - members.begin();
    return std::make_unique<Member>(hall_, part, static_cast<int>(mine));
  }

 private:
  Hall& hall_;
  Group& group_;
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

void ThreadsWorld::end(int rank, const std::string& how) { hall_->end(rank, how); }

void ThreadsWorld::abort(const std::string& reason) { hall_->abort(reason); }

}  // namespace lockstep
