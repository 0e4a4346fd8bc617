// The checker of action lists against an executor that knows nothing of its rules: it runs a list over symbolic values
// and looks at what came out.
#include "spec/step/actions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <stdexcept>

namespace lockstep::tests {
namespace {

std::vector<StepShape> shapes() {
  return {{.units = 1, .micro = 1},
          {.units = 3, .micro = 1},
          {.units = 3, .micro = 2, .tie_owner = 0, .tie_borrower = 2},
          {.units = 4, .micro = 3},
          {.units = 3, .micro = 2, .publishes = true},
          {.units = 3, .micro = 3, .tie_owner = 0, .tie_borrower = 2, .reduces_each = true},
          {.units = 4, .micro = 1, .gathers = true},
          {.units = 3, .micro = 2, .tie_owner = 0, .tie_borrower = 2, .gathers = true},
          {.units = 4, .micro = 2, .reduces_each = true, .gathers = true, .kept_units = 1},
          {.units = 4, .micro = 2, .tie_owner = 0, .tie_borrower = 3, .gathers = true, .kept_units = 9},
          {.units = 5, .micro = 4, .tie_owner = 0, .tie_borrower = 4}};
}

// Runs a list on words instead of tensors. A unit's forward turns the word it is given into another and keeps what its
// backward will need; every read of something that is not there, every write over something still needed and every
// piece of work done twice is a failure of the machine itself, not of a rule about lists.
class BruteForce {
 public:
  explicit BruteForce(const StepShape& shape)
      : shape_(shape),
        from_forward_(shape.units),
        from_backward_(shape.units),
        tied_(shape.units),
        weight_(shape.units, "w"),
        elsewhere_(shape.units, "w"),
        reduced_(shape.units, 0),
        whole_(shape.units, false) {}

  // What the step leaves behind: the weights, and whatever was never picked up.
  struct End {
    std::vector<std::string> weights, elsewhere;  // of the rank that updates, and of one that does not
    std::vector<std::string> sums;                // in which order each gradient was added up
    std::size_t left_over;
    bool operator==(const End&) const = default;
  };
  End run(const std::vector<Action>& list) {
    for (const Action& a : list) run(a);
    std::vector<std::string> sums;
    for (int u = 0; u < shape_.units; ++u) sums.push_back(gradient(u));
    return {weight_, elsewhere_, sums, kept_.size() + static_cast<std::size_t>(std::ranges::count(whole_, true))};
  }

 private:
  using Key = std::tuple<std::string, int, int>;

  void put(const std::string& what, int u, int m, const std::string& value) {
    if (!kept_.emplace(Key{what, u, m}, value).second) throw std::runtime_error("written over");
  }
  std::string take(const std::string& what, int u, int m) {
    const auto found = kept_.find({what, u, m});
    if (found == kept_.end()) throw std::runtime_error("read before written");
    std::string value = found->second;
    kept_.erase(found);
    return value;
  }

  void run(const Action& a) {
    const int u = a.unit, m = a.micro, last = shape_.units - 1;
    const bool phase = a.kind <= ActionKind::backward_weight || (a.kind == ActionKind::reduce && shape_.reduces_each);
    if (a.kind != ActionKind::norm && (u < 0 || u > last)) throw std::out_of_range("unit");
    if (phase && (m < 0 || m >= shape_.micro)) throw std::out_of_range("micro");
    if (a.kind == ActionKind::norm && (u != -1 || m != -1)) throw std::out_of_range("norm of a unit");
    if (!phase && m != -1) throw std::out_of_range("micro of a step's action");
    const auto id = std::to_string(u) + "." + std::to_string(m);
    switch (a.kind) {
      case ActionKind::forward: {
        read(u);
        if (u == shape_.tie_borrower) read(shape_.tie_owner);
        const std::string x = u == 0 ? "x" + std::to_string(m) : take("y", u - 1, m);
        put("saved", u, m, x);
        if (u < last)
          put("y", u, m, "f" + id + "(" + x + ")");
        else
          add(from_forward_, u, "h" + id + "(" + x + ")"), put("dy", u, m, "loss(" + x + ")");
        if (u == last && shape_.reduces_each) put("from forward", u, m, "");
        return;
      }
      case ActionKind::backward_input: {
        if (u > 0) read(u);
        const std::string dy = take("dy", u, m), saved = take("saved", u, m);
        put("for weight", u, m, dy + saved);
        if (u > 0) put("dy", u - 1, m, "b" + id + "(" + dy + ")");
        return;
      }
      case ActionKind::backward_weight:
        if (shape_.reduces_each) put("from backward", u, m, "");
        return add(from_backward_, u, "g" + id + take("for weight", u, m));
      case ActionKind::gather:
        if (!shape_.gathers || whole_[u] || weight_[u] != "w") throw std::runtime_error("no use in gathering it");
        whole_[u] = true;
        return;
      case ActionKind::release:
        if (!whole_[u]) throw std::runtime_error("not whole");
        whole_[u] = false;
        return;
      case ActionKind::reduce:
        if (shape_.reduces_each) {  // of one micro-batch, whose gradient it has to find whole
          if (u == last) take("from forward", u, m);
          take("from backward", u, m);
          if (u == shape_.tie_borrower) put("tied", u, m, "");  // begins the owner's sum
          if (u == shape_.tie_owner) take("tied", shape_.tie_borrower, m);
          if (reduced_[u]++ != m) throw std::runtime_error("micro-batches are reduced out of order");
          if (reduced_[u] == shape_.micro) frozen_.insert(u);
          return;
        }
        // Closed: nothing may be added any more. A tied gradient is taken from its borrower as it stands.
        if (!frozen_.insert(u).second) throw std::runtime_error("reduced twice");
        if (u == shape_.tie_owner) tied_[u] = gradient(shape_.tie_borrower);
        return;
      case ActionKind::norm:
        if (!norm_.empty()) throw std::runtime_error("a second norm");
        for (int i = 0; i < shape_.units; ++i) norm_ += gradient(i) + (frozen_.contains(i) ? ";" : "unreduced");
        return;
      case ActionKind::update:
        if (norm_.empty()) throw std::runtime_error("no norm");
        if (weight_[u] != "w") throw std::runtime_error("updated twice");
        if (whole_[u]) throw std::runtime_error("old weights are in use");
        weight_[u] = "new:" + gradient(u) + "/" + norm_;
        return;
      case ActionKind::publish:
        if (!shape_.publishes || weight_[u] == "w") throw std::runtime_error("nothing to publish");
        if (elsewhere_[u] != "w") throw std::runtime_error("published twice");
        elsewhere_[u] = weight_[u];
        return;
      default:
        throw std::out_of_range("there is one stage");
    }
  }
  void read(int u) const {
    if (weight_[u] != "w") throw std::runtime_error("the weight has moved already");
    if (shape_.gathers && !whole_[u]) throw std::runtime_error("the weight is not here");
  }
  void add(std::vector<std::string>& sums, int u, const std::string& what) {
    if (frozen_.contains(u)) throw std::runtime_error("gradient is closed");
    sums[u] += what + "+";
  }
  // The sums of one kernel have an order; what a forward and what a backward add goes to different parameters.
  std::string gradient(int u) const { return from_forward_[u] + "&" + from_backward_[u] + "&" + tied_[u]; }

  StepShape shape_;
  std::map<Key, std::string> kept_;
  std::vector<std::string> from_forward_, from_backward_, tied_, weight_, elsewhere_;
  std::vector<int> reduced_;  // micro-batches
  std::vector<bool> whole_;
  std::set<int> frozen_;
  std::string norm_;
};

bool brute_force_accepts(const std::vector<Action>& list, const StepShape& shape) {
  const auto whole = BruteForce(shape).run(serial_step(shape));
  try {
    const auto end = BruteForce(shape).run(list);
    return end == whole;
  } catch (const std::exception&) {
    return false;
  }
}

TEST(Actions, TheSerialStepIsAStep) {
  for (const StepShape& shape : shapes()) {
    EXPECT_EQ(find_fault(serial_step(shape), shape), std::nullopt);
    EXPECT_TRUE(brute_force_accepts(serial_step(shape), shape));
    const auto list = serial_step(shape);
    const auto lent = std::ranges::count_if(
        list, [](const Action& a) { return a.kind == ActionKind::gather || a.kind == ActionKind::release; });
    const int reduces = shape.reduces_each ? shape.micro : 1;
    EXPECT_EQ(std::ssize(list) - lent, shape.units * (3 * shape.micro + reduces + (shape.publishes ? 2 : 1)) + 1);
    EXPECT_EQ(lent > 0, shape.gathers);
  }
}

// A random order that respects what each action needs, made without asking the checker: an action is taken when the
// brute-force machine can run it.
std::vector<Action> random_step(const StepShape& shape, std::mt19937& random) {
  std::vector<Action> left = serial_step(shape), list;
  while (!left.empty()) {
    std::vector<std::size_t> possible;
    for (std::size_t i = 0; i < left.size(); ++i) {
      std::vector<Action> tried = list, rest = left;
      tried.push_back(left[i]);
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
      tried.insert(tried.end(), rest.begin(), rest.end());  // finished in the serial order of what is left
      if (brute_force_accepts(tried, shape)) possible.push_back(i);
    }
    const std::size_t i = possible.at(random() % possible.size());
    list.push_back(left[i]);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return list;
}

TEST(Actions, AcceptsEveryOrderThatComputesTheSameThing) {
  std::mt19937 random(1);
  for (const StepShape& shape : shapes())
    for (int i = 0; i < 6; ++i) {
      const auto list = random_step(shape, random);
      EXPECT_EQ(find_fault(list, shape), std::nullopt);
    }
}

std::vector<Action> broken(std::vector<Action> list, const StepShape& shape, std::mt19937& random) {
  const int edits = 1 + static_cast<int>(random() % 3);
  for (int e = 0; e < edits && !list.empty(); ++e) {
    const auto at = static_cast<std::ptrdiff_t>(random() % list.size());
    const auto to = static_cast<std::ptrdiff_t>(random() % list.size());
    switch (random() % 6) {
      case 0:
        std::swap(list[at], list[to]);
        break;
      case 1:
        list.erase(list.begin() + at);
        break;
      case 2:
        list.insert(list.begin() + to, list[at]);
        break;
      case 3: {  // moved elsewhere
        const Action a = list[at];
        list.erase(list.begin() + at);
        list.insert(list.begin() + std::min<std::ptrdiff_t>(to, std::ssize(list)), a);
        break;
      }
      case 4:
        list[at].micro = static_cast<int>(random() % (shape.micro + 2)) - 1;
        break;
      case 5:
        list[at].unit = static_cast<int>(random() % (shape.units + 2)) - 1;
        break;
    }
  }
  return list;
}

TEST(Actions, TheCheckerAgreesWithBruteForceOnBrokenLists) {
  std::mt19937 random(7);
  int accepted = 0, refused = 0;
  // Broken from orders of every kind: from the serial one alone, some faults are many edits away.
  std::vector<std::pair<StepShape, std::vector<Action>>> whole;
  for (const StepShape& shape : shapes()) {
    whole.emplace_back(shape, serial_step(shape));
    for (int i = 0; i < 8; ++i) whole.emplace_back(shape, random_step(shape, random));
  }
  for (int i = 0; i < 20000; ++i) {
    const auto& [shape, good] = whole[i % whole.size()];
    const auto list = broken(good, shape, random);
    const auto fault = find_fault(list, shape);
    ASSERT_EQ(!fault.has_value(), brute_force_accepts(list, shape))
        << "list " << i << ": " << fault.value_or("no fault found");
    ++(fault ? refused : accepted);
  }
  EXPECT_GE(refused, 1000);
  EXPECT_GE(accepted, 100);  // both directions are tried
}

std::string words(const std::vector<Action>& list) {
  std::string text;
  for (const Action& a : list) text.append(to_string(a)).append(" ");
  text.pop_back();
  return text;
}

TEST(Actions, AUnitIsGatheredWhileTheOneBeforeItComputes) {
  EXPECT_EQ(words(forward_pass({.units = 4, .gathers = true})),
            "gather(0) gather(1) forward(0, 0) release(0) gather(2) forward(1, 0) release(1) gather(3) forward(2, 0) "
            "release(2) forward(3, 0) release(3)");
  // The block before the head is not given up, since it is wanted again at once; the embedding's backward reads
  // nothing.
  const auto step = words(serial_step({.units = 4, .gathers = true}));
  EXPECT_EQ(step.substr(0, step.find(" norm")),
            "gather(0) gather(1) forward(0, 0) release(0) gather(2) forward(1, 0) release(1) gather(3) forward(2, 0) "
            "forward(3, 0) backward_input(3, 0) release(3) gather(1) backward_weight(3, 0) reduce(3) "
            "backward_input(2, 0) release(2) backward_weight(2, 0) reduce(2) backward_input(1, 0) release(1) "
            "backward_weight(1, 0) reduce(1) backward_input(0, 0) backward_weight(0, 0) reduce(0)");
}

TEST(Actions, KeptUnitsAreGatheredOnceAMicroBatch) {
  for (const int kept : {0, 1, 2, 3, 9}) {
    const auto list = serial_step({.units = 5, .micro = 3, .gathers = true, .kept_units = kept});
    const auto gathers = std::ranges::count(list, ActionKind::gather, &Action::kind);
    // Forward: all five, but the first block when it comes from the micro-batch before. Backward: the blocks but the
    // last, which stays, and those that are kept; never the first unit.
    EXPECT_EQ(gathers, 3 * (5 + 2 - std::min(std::max(kept - 1, 0), 2)) - 2) << kept;
  }
}

TEST(Actions, AFaultNamesTheActionAndWhatItNeeds) {
  const StepShape shape{.units = 3, .micro = 2};
  auto list = serial_step(shape);
  std::swap(list[1], list[2]);
  EXPECT_EQ(find_fault(list, shape), "action 1, forward(2, 0): needs forward(1, 0) first");
  list = serial_step(shape);
  list.pop_back();
  EXPECT_EQ(find_fault(list, shape), "update(2) is missing");
  list = serial_step(shape);
  list.push_back(list[0]);
  EXPECT_EQ(find_fault(list, shape), "action 25, forward(0, 0): it has run before");
  list[0].unit = 3;
  EXPECT_EQ(find_fault(list, shape), "action 0, forward(3, 0): there is no such action in this step");
}

}  // namespace
}  // namespace lockstep::tests
