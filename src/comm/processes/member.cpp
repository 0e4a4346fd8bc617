#include "comm/processes/member.h"

#include <algorithm>
#include <cstring>

namespace lockstep::processes {

namespace {

class OperationHandle final : public Pending {
 public:
  OperationHandle(Engine& engine, std::shared_ptr<ProcessGroup> group, std::shared_ptr<Operation> operation,
                  double deadline_seconds)
      : engine_(engine), group_(std::move(group)), operation_(std::move(operation)), deadline_(deadline_seconds) {}
  ~OperationHandle() override {
    if (!ended_) engine_.abandon(*operation_);
  }

  bool done() override { return ended_ || engine_.test(*operation_, deadline_.get()); }
  void wait() override {
    if (!ended_) engine_.wait(*operation_, deadline_.get());
    ended_ = true;
    const CommFailure& failure = operation_->failure;
    if (!failure.what.empty()) failure.raise();
  }
  std::string waits_for() override { return ended_ ? "" : engine_.missing(*operation_); }

 private:
  Engine& engine_;
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<Operation> operation_;
  waiting::Deadline deadline_;
  bool ended_ = false;
};

class Member final : public Communicator {
 public:
  Member(Engine& engine, std::shared_ptr<ProcessGroup> group)
      : Communicator(group->rank, group->size(), group->name, Device::cpu), engine_(engine), group_(std::move(group)) {}
  ~Member() override { engine_.close(group_); }

  Started start(const Message& message) override {
    check_message(message, rank(), size(), Device::cpu);
    if (size() == 1) {
      for (const Message& pair : pairs_of(message))
        if (pair.out && pair.out.raw() != pair.in.raw() && pair.out.bytes() > 0)
          std::memcpy(pair.out.raw(), pair.in.raw(), static_cast<std::size_t>(pair.out.bytes()));
      return std::make_unique<NothingPending>();
    }
    return std::make_unique<OperationHandle>(engine_, group_, engine_.start(*group_, message),
                                             message.deadline > 0 ? message.deadline : engine_.deadline());
  }

  std::unique_ptr<Memory> memory(Ledger& ledger) override { return engine_.memory(*group_, ledger); }

  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    const int color = place(rank()).color, division = ++group_->splits;
    if (color < 0) return nullptr;
    std::vector<int> members = members_of(rank(), size(), place);
    const auto mine = std::find(members.begin(), members.end(), rank()) - members.begin();
    for (int& member : members) member = group_->members[static_cast<std::size_t>(member)];
    return std::make_unique<Member>(
        engine_, engine_.open({name, std::move(members), static_cast<int>(mine), key(division, color)}, group_.get()));
  }

 private:
  // Ranks that divide the same group for the same time and have the same color find the same window.
  std::uint64_t key(int division, int color) const {
    std::uint64_t h = group_->key;
    for (const int part : {division, color}) {
      h = (h ^ static_cast<std::uint64_t>(part + 1)) * 0x9e3779b97f4a7c15u;
      h ^= h >> 29;
    }
    return h ? h : 1;
  }

  Engine& engine_;
  std::shared_ptr<ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<Communicator> member_of(Engine& engine, std::shared_ptr<ProcessGroup> group) {
  return std::make_unique<Member>(engine, std::move(group));
}

}  // namespace lockstep::processes
