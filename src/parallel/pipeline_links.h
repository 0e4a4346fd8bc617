// What a pipeline stage sends to other stages and receives from them, under way while it computes.
//
// Messages to one stage, and those from one, go in the order in which they were asked for. At most kSendsInFlight to
// one stage are under way: one more waits for the oldest, after which the tensor of that one may be overwritten
// (spec/step/actions.h, sent_by, says when). One thread uses it; the group, whose ranks are the stages, outlives it.
#pragma once
#include <deque>
#include <map>
#include <tuple>

#include "comm/communicator.h"
#include "spec/step/actions.h"

namespace lockstep {

class PipelineLinks {
 public:
  explicit PipelineLinks(Communicator& stages) : stages_(stages) {}

  // One message more may go to that stage without waiting.
  void make_room(int to) {
    std::deque<Communicator::Started>& queue = sends_[to];
    if (queue.size() < kSendsInFlight) return;
    queue.front()->wait();
    queue.pop_front();
  }
  // Tensors of no elements are not sent, and not waited for.
  void send(const ConstTensor& x, int to) {
    if (x.elements() == 0) return;
    make_room(to);
    sends_[to].push_back(stages_.send(x, to));
  }
  // At most so many of what was sent there are still under way.
  void keep_at_most(int sends, int to) {
    std::deque<Communicator::Started>& queue = sends_[to];
    for (; std::ssize(queue) > sends; queue.pop_front()) queue.front()->wait();
  }
  void receive(const Action& action, const Tensor& x, int from) {
    if (x.elements() > 0) receives_[key(action)] = stages_.recv(x, from);
  }
  // Returns when what was asked for by this action has come; at once (false) where nothing was, or it was waited for
  // before.
  bool ready(const Action& action) {
    const auto found = receives_.find(key(action));
    if (found == receives_.end()) return false;
    found->second->wait();
    receives_.erase(found);
    return true;
  }
  // Everything that is under way has come to its end.
  void settle() {
    for (auto& [to, queue] : sends_) {
      for (const Communicator::Started& one : queue) one->wait();
      queue.clear();
    }
    for (const auto& [key, one] : receives_) one->wait();
    receives_.clear();
  }

 private:
  using Key = std::tuple<ActionKind, int, int>;
  static Key key(const Action& a) { return {a.kind, a.unit, a.micro}; }

  Communicator& stages_;
  std::map<int, std::deque<Communicator::Started>> sends_;
  std::map<Key, Communicator::Started> receives_;
};

}  // namespace lockstep
