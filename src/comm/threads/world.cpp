#include "comm/threads/world.h"

#include <thread>

#include "comm/sequence.h"
#include "comm/threads/rendezvous.h"

namespace lockstep {

namespace threads {
namespace {

// A rank's side of a pending operation. For a rank that computes in a stream: also where that stream was at the call,
// and what it waits for.
class OperationHandle final : public Pending {
 public:
  OperationHandle(Rendezvous& rendezvous, int rank, double deadline_seconds)
      : rendezvous_(rendezvous), rank_(rank), deadline_(deadline_seconds) {}
  ~OperationHandle() override {
    if (!operation_) return;
    completed_ = rendezvous_.abandon(*operation_, rank_);
    try {
      order();  // the tensors may be put to other use in the rank's stream, while the device is at them
    } catch (const std::exception&) {  // a device that takes no more work: there is nothing to order
    }
  }

  void arrive(ThreadGroup& group, const Message& message, std::uint64_t sequence, Stream* compute) {
    compute_ = compute;
    if (compute_) {
      ready_ = compute_->make_event();
      compute_->record(*ready_);
    }
    operation_ = rendezvous_.arrive(group, rank_, {message, sequence, ready_.get()}, failure_);
  }

  bool done() override {
    if (operation_ && !rendezvous_.test(*operation_, rank_, deadline_.get())) return false;
    Event* completed = operation_ ? operation_->completed.get() : completed_.get();
    return !completed || completed->done();
  }

  void wait() override {
    if (operation_) {
      rendezvous_.wait(*operation_, rank_, deadline_.get());
      completed_ = operation_->completed;
      if (const auto failure = rendezvous_.release(*std::exchange(operation_, nullptr), rank_)) failure_ = *failure;
      order();
    }
    if (!failure_.what.empty()) failure_.raise();
  }

  std::string waits_for() override { return operation_ ? rendezvous_.missing(*operation_) : ""; }

 private:
  void order() {
    if (completed_) compute_->wait(*completed_);
  }

  Rendezvous& rendezvous_;
  int rank_;
  PendingOperation* operation_ = nullptr;  // null when it is over
  CommFailure failure_;
  waiting::Deadline deadline_;
  Stream* compute_ = nullptr;
  std::unique_ptr<Event> ready_;
  std::shared_ptr<Event> completed_;
};

class Member final : public Communicator {
 public:
  Member(Rendezvous& rendezvous, ThreadGroup& group, int rank, Stream* compute = nullptr)
      : Communicator(rank, static_cast<int>(group.members.size()), group.name,
                     compute ? compute->device() : Device::cpu),
        rendezvous_(rendezvous),
        group_(&group),
        compute_(compute) {
    rendezvous_.join(group, rank);
    if (compute_) rendezvous_.run_in_stream(group, device());
  }
  // Takes the place of one that has none of a stream.
  Member(Member& from, Stream& compute)
      : Communicator(from.rank(), from.size(), from.name(), compute.device()),
        rendezvous_(from.rendezvous_),
        group_(from.group_),
        compute_(&compute),
        sequence_(from.sequence_) {
    rendezvous_.run_in_stream(*group_, device());
    from.group_ = nullptr;
  }
  ~Member() override {
    if (group_) rendezvous_.leave(*group_, rank());
  }

  Started start(const Message& message) override {
    check_message(message, rank(), size(), device());
    if (size() == 1) return start_in_group_of_one(message);
    auto handle = std::make_unique<OperationHandle>(rendezvous_, rank(),
                                                    message.deadline > 0 ? message.deadline : rendezvous_.deadline());
    handle->arrive(*group_, message, sequence_.next(message), compute_);
    return handle;
  }

  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    const int color = place(rank()).color;
    const std::vector<int> members = members_of(rank(), size(), place);
    ThreadGroup& part = rendezvous_.split(*group_, rank(), color, members, name);
    if (color < 0) return nullptr;
    const auto mine = std::find(members.begin(), members.end(), rank()) - members.begin();
    return std::make_unique<Member>(rendezvous_, part, static_cast<int>(mine), compute_);
  }

 private:
  Started start_in_group_of_one(const Message& message) {
    const BufferPlan plan({&message, 1});
    if (compute_)  // in the rank's own order: nobody else has a part in it
      for (const BufferPlan::Copy& copy : plan.copies())
        for (char* to : copy.to) copy_later(to, copy.from, copy.bytes, *compute_);
    else
      for (std::int64_t piece = 0; piece < plan.pieces(); ++piece) plan.run(piece);
    return std::make_unique<NothingPending>();
  }

  Rendezvous& rendezvous_;
  ThreadGroup* group_;
  Stream* compute_;  // null: computes inline
  Sequence sequence_;
};

}  // namespace
}  // namespace threads

ThreadsWorld::ThreadsWorld(int ranks, ThreadsOptions options) {
  LOCKSTEP_CHECK(ranks >= 1 && ranks <= kMostSummands, "{} ranks as threads, 1 to {} are supported", ranks,
                 kMostSummands);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  rendezvous_ = std::make_unique<threads::Rendezvous>(ranks, options.deadline_seconds,
                                                      std::max(1, options.helpers > 0 ? options.helpers : cores));
}

ThreadsWorld::~ThreadsWorld() = default;

std::unique_ptr<Communicator> ThreadsWorld::communicator(int rank) {
  LOCKSTEP_CHECK(rank >= 0 && rank < static_cast<int>(rendezvous_->world().members.size()), "no rank {}", rank);
  return std::make_unique<threads::Member>(*rendezvous_, rendezvous_->world(), rank);
}

std::unique_ptr<Communicator> on_stream(std::unique_ptr<Communicator> comm, Stream& compute) {
  auto* member = dynamic_cast<threads::Member*>(comm.get());
  LOCKSTEP_CHECK(member, "'{}' is not a group of thread ranks as its world gave it", comm->name());
  return std::make_unique<threads::Member>(*member, compute);
}

void ThreadsWorld::end(int rank, const std::string& how) { rendezvous_->end(rank, how); }

void ThreadsWorld::abort(const std::string& reason) { rendezvous_->abort(reason); }

}  // namespace lockstep
